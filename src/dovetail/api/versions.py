"""Which versions of Kubernetes and Karpenter are supported, and what Dovetail says about others.

Objects of other versions are read as far as possible; a warning says that the version is untested. Sits in api.
"""

import re
from typing import Final

KUBERNETES: Final = ((1, 31), (1, 36))
"""The oldest and the newest minor version that are supported."""
KARPENTER: Final = ((1, 6), (1, 15))
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(?:[.+-].*)?")


def version_note(product: str, version: str) -> str:
    """Return a note on a version of `Kubernetes` or `Karpenter`; empty if it is supported."""
    oldest, newest = KUBERNETES if product == "Kubernetes" else KARPENTER
    span = f"{_shown(oldest)} to {_shown(newest)}"
    found = _VERSION.fullmatch(version.strip())
    if found is None:
        return f"{product} says version {version[:40]!r}, which can't be read; {span} are supported"
    number = (int(found[1]), int(found[2]))
    if number < oldest:
        return f"{product} {version} is older than what is supported ({span}): its objects are read as far as they go"
    if number > newest:
        return f"{product} {version} is newer than what is supported ({span}): fields that came since are not read"
    return ""


def _shown(number: tuple[int, int]) -> str:
    return f"{number[0]}.{number[1]}"
