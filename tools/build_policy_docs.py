"""Writes the table of policy fields in docs/rules.md from `dovetail.api.policy_fields`. `--check` only compares."""

import re
import sys
from pathlib import Path

from dovetail.api.policy_fields import docs_table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "rules.md"
_NOTE = "<!-- Generated from the code by tools/build_policy_docs.py; a test keeps it current. -->\n\n"
_TABLE = re.compile(re.escape(_NOTE) + r"(?:\|.*\n)*")


def page() -> str:
    """Return the page with the table that the code has now."""
    table = _NOTE + "".join(f"{line}\n" for line in docs_table())
    made, count = _TABLE.subn(lambda _: table, PAGE.read_text())
    if count != 1:
        raise SystemExit(f"{PAGE.name} has {count} places for the table; it needs one: {_NOTE.strip()}")
    return made


def main() -> int:
    """Write the page, or return 1 if it is out of date."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
