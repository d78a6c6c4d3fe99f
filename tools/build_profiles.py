"""Writes docs/profiles.md: every value in which the profiles differ, from the code. `--check` only compares."""

import sys
import textwrap
from dataclasses import fields
from pathlib import Path

from dovetail.api.settings import SETTING_FIELDS
from dovetail.model.rules import Rules, about
from dovetail.model.settings import PROFILES, Profile, Settings, Stabilization
from dovetail.model.timing.duration import format_duration

PAGE = Path(__file__).resolve().parent.parent / "docs" / "profiles.md"
_HEAD = """\
# Profiles

<!-- Generated from the code by tools/build_profiles.py; a test keeps it current. -->

A profile is a set of values, chosen with `--profile`: `dovetail` is the default, `karpenter-1.15` down to
`karpenter-1.9` repeat Karpenter, flaws included ([deviations](deviations.md)).

## Settings

A key in a [settings file](settings.md) wins over the profile. The profiles agree on all other keys.
"""
_RULES = """\
## Rules

No settings file changes these. A rule holds in the profiles of its heading:
"""


_OLDER = """\
## Older versions of Karpenter

They have the values of `karpenter-1.15`, except:
"""
_GATES = """\
Feature gates that came later are ignored: CapacityBuffer came with v1.14; TerminateFirstDrift,
TerminateFirstRepair, PodDeletionCostManagement and the scheduler configuration with v1.15. Three flaws of older
versions are not repeated: host ports of one new node counted on all of its pool (up to v1.12); logged savings used
offerings that could not be launched (v1.13); a full reservation counted as launchable (v1.14).
"""
_OWN_FEATURES = {
    "extended_policy": "rules.md#policy",
    "pauses": "rules.md#pause",
    "health_limits": "rules.md#health",
    "grace_period": "rules.md#timers",
    "retires_expired": "rules.md#expiry",
    "roll_requests": "rules.md#rolls",
    "pod_windows": "rules.md#pod-windows",
    "surges": "rules.md#surge",
    "topology_budgets": "rules.md#budgets",
    "rate_budgets": "rules.md#rates",
    "savings_threshold": "rules.md#price",
    "waste": "rules.md#waste",
    "last_look": "rules.md#carrying-out",
    "remembers_regrowth": "rules.md#stabilization",
    "steers": "rules.md#steering",
    "daemon_like_pods": "operators-controls.md#daemon-like-pods",
    "resizes_moved": "operators-controls.md#pods-that-come-back-with-another-size",
    "own_annotations": "rules.md#gates",
    "unpriced_nodes_stay": "operations.md#prices",
}
"""Rules of features that Karpenter does not have, with the section of the docs that describes them."""
_HELD = ("without", "with")
_MAIN = (Profile.DOVETAIL, Profile.KARPENTER_1_15)
_KARPENTERS = tuple(profile for profile in PROFILES if profile is not Profile.DOVETAIL)


def page() -> str:
    """Return the whole page."""
    parts = [
        _HEAD,
        _table(("key", *_MAIN), _settings(_MAIN)),
        _RULES,
        *_meanings(),
        _OLDER,
        *_older(),
        _GATES,
    ]
    return "\n".join(parts)


def _settings(profiles: tuple[Profile, ...]) -> list[tuple[str, ...]]:
    rows = []
    keys = {field: key for key, field in SETTING_FIELDS.items()}
    for entry in fields(Settings):
        values = [getattr(PROFILES[profile], entry.name) for profile in profiles]
        if entry.name in keys and entry.name != "karpenter" and len(set(map(repr, values))) > 1:
            rows.append((f"`{keys[entry.name]}`", *map(_shown, values)))
    return rows


def _older() -> list[str]:
    """Return a line for each value in which versions of Karpenter differ: what it is up to which version."""
    rules = [f for f in fields(Rules) if len({getattr(PROFILES[p].rules, f.name) for p in _KARPENTERS}) > 1]
    rows = [
        *_settings(_KARPENTERS),
        *((f"`{f.name}`", *(_holds(getattr(PROFILES[p].rules, f.name)) for p in _KARPENTERS)) for f in rules),
    ]
    found: dict[str, list[str]] = {}
    for name, newest, *others in rows:
        changed = next(at for at, value in enumerate(others, start=1) if value != newest)
        [before] = set(others[changed - 1 :])  # each value changed once
        heading = f"up to v{_KARPENTERS[changed].removeprefix('karpenter-')}"
        found.setdefault(heading, []).append(f"{before} {name}" if before in _HELD else f"{name} {before}")
    lines = (f"- {heading}: {', '.join(names)}" for heading, names in found.items())
    return [*(part for line in lines for part in textwrap.wrap(line, 100, subsequent_indent="  ")), ""]


def _holds(value: object) -> str:
    return _HELD[bool(value)]


def _meanings() -> list[str]:
    """Return every rule with its meaning, or a link to it, under the profiles in which it holds."""
    found: dict[str, list[str]] = {}
    linked = []
    for entry in fields(Rules):
        holding = [profile.value for profile in _MAIN if getattr(PROFILES[profile].rules, entry.name)]
        if entry.name in _OWN_FEATURES:
            assert holding == [Profile.DOVETAIL.value]
            linked.append(f"[`{entry.name}`]({_OWN_FEATURES[entry.name]})")
            continue
        heading = " and ".join(holding) or "only older versions of Karpenter"
        found.setdefault(heading, []).extend(_item(f"`{entry.name}`: {about(entry.name)}"))
    found[Profile.DOVETAIL.value] += _item(f"features that Karpenter lacks: {', '.join(linked)}")
    return [text for heading, lines in found.items() for text in (f"### {heading}\n", *lines, "")]


def _item(text: str) -> list[str]:
    return textwrap.wrap(f"- {text}", 100, subsequent_indent="  ", break_on_hyphens=False)


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
