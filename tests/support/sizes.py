"""How many cases a property is tried on: few in `make test`, more in CI, many in `make test-long`.

`DOVETAIL_TESTS` says which: unset for `make test`, `ci` for `.ci/run`, `long` for `make test-long`. Every test runs in
each of them; only the number of generated cases differs.
"""

import os
from typing import Final

_KNOWN: Final = ("", "ci", "long")
CHOSEN: Final = os.environ.get("DOVETAIL_TESTS", "")
if CHOSEN not in _KNOWN:
    raise ValueError(f'DOVETAIL_TESTS is "{CHOSEN}"; leave it out, or write ci or long')
LONG: Final = CHOSEN == "long"


def size(*, test: int, ci: int, long: int) -> int:
    """Return how many cases to try."""
    return (test, ci, long)[_KNOWN.index(CHOSEN)]
