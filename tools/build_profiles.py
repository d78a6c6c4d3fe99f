"""Writes docs/profiles.md: every value in which the profiles differ, from the code. `--check` only compares."""

import sys
import textwrap
from dataclasses import fields
from pathlib import Path

from dovetail.api.settings import SETTING_FIELDS
from dovetail.model.rules import Rules, about
from dovetail.model.settings import PROFILES, Settings, Stabilization
from dovetail.model.timing.duration import format_duration

PAGE = Path(__file__).resolve().parent.parent / "docs" / "profiles.md"
_HEAD = """\
# Profiles

<!-- Generated from the code by tools/build_profiles.py; a test keeps it current. -->

A profile is a set of values, chosen with `--profile`: `dovetail` is the default, `karpenter-1.15` repeats
what Karpenter v1.15 does on the same objects, its flaws included ([deviations](deviations.md)). Nothing
in Dovetail asks which profile is in use: every rule in which they differ is one of the values below.

## Settings

You can change these in a [settings file](settings.md); a key in the file wins over the profile. The
profiles agree on all other keys.
"""
_RULES = """\
## Rules

These belong to the profile; no settings file changes them.
"""


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD, _table(("key", *PROFILES), list(_settings())), _RULES, _table(("rule", *PROFILES), list(_rules()))]
    return "\n".join(parts) + "\n" + "\n".join(_meanings())


def _settings() -> list[tuple[str, ...]]:
    rows = []
    keys = {field: key for key, field in SETTING_FIELDS.items()}
    for entry in fields(Settings):
        values = [getattr(settings, entry.name) for settings in PROFILES.values()]
        if entry.name in keys and len(set(map(repr, values))) > 1:
            rows.append((f"`{keys[entry.name]}`", *map(_shown, values)))
    return rows


def _rules() -> list[tuple[str, ...]]:
    rows = []
    for entry in fields(Rules):
        values = (getattr(settings.rules, entry.name) for settings in PROFILES.values())
        rows.append((f"`{entry.name}`", *("yes" if value else "no" for value in values)))
    return rows


def _meanings() -> list[str]:
    lines = ["", "What each rule means where it is *yes*:", ""]
    for entry in fields(Rules):
        lines += textwrap.wrap(f"- `{entry.name}`: {about(entry.name)}", 100, subsequent_indent="  ")
    return [*lines, ""]


def _shown(value: object) -> str:
    if isinstance(value, Stabilization):
        named = (f"{entry.name} {format_duration(getattr(value, entry.name))}" for entry in fields(value))
        return ", ".join(named)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows), ""])


def main() -> int:
    """Write the page, or say that it is out of date."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
