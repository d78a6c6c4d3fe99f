"""Writes docs/internals/placement-agreement.md: how both packers compare with Karpenter.

Run it from the project's folder: `python -m tests.golden.agreement_table` (minutes: the reference packer is slow).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.golden.deviations import DEVIATIONS, Deviation, expected_differences
from tests.golden.rules import RULES
from tests.golden.simulations import Packer, ReferenceSide, checks
from tests.paths import ROOT
from tests.support.golden_cases import GoldenCase, golden_cases
from tests.support.golden_kernel import KernelSide

PACKERS: tuple[tuple[str, Callable[[GoldenCase], Packer]], ...] = (
    ("reference", ReferenceSide),
    ("kernel", KernelSide),
)


@dataclass
class Tally:
    """Count queries and equal answers, for placements and simulations separately."""

    placements: int = 0
    simulations: int = 0
    agreeing: dict[str, int] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Takes the figures of another in."""
        self.placements += other.placements
        self.simulations += other.simulations
        for name, count in other.agreeing.items():
            self.agreeing[name] = self.agreeing.get(name, 0) + count


def tally(case: GoldenCase) -> Tally:
    """Return the figures of one case."""
    found = Tally()
    for name, make in PACKERS:
        answered = list(checks(case, make(case)))
        found.placements = sum(check.question.what == "placement" for check in answered)
        found.simulations = len(answered) - found.placements
        found.agreeing[name] = sum(check.agrees for check in answered)
    return found


def _row(cases: Sequence[GoldenCase], found: Tally) -> str:
    asked = found.placements + found.simulations
    listed = sum(expected_differences(case.name) for case in cases)
    shares = [f"{found.agreeing[side]} of {asked}" for side, _ in PACKERS]
    return f"| {len(cases)} | {found.placements} | {found.simulations} | {' | '.join(shares)} | {listed} |"


def _wavering() -> list[str]:
    """Return the cases in which Karpenter's own placement varies."""
    names = []
    for case in golden_cases():
        stability = case.provision["stability"]
        if stability["runsEqualToSorted"] < stability["runs"]:
            names.append(f"{case.name} ({stability['runsEqualToSorted']} of {stability['runs']} runs)")
    return names


def page() -> str:
    """Return the whole page."""
    everything = Tally()
    for case in golden_cases():
        everything.add(tally(case))
    rules = [name for name, applies in RULES if any(applies(case) for case in golden_cases())]
    template = Path(__file__).with_name("placement-agreement.md.in").read_text()
    return (
        template.replace("@table@", _row(golden_cases(), everything))
        .replace("@rules@", str(len(rules)))
        .replace("@deviations@", "\n".join(_listed(item) for item in DEVIATIONS))
        .replace("@wavering@", ", ".join(_wavering()))
    )


def _listed(item: Deviation) -> str:
    counts = ", ".join(f"{name}: {count} answers" for name, count in item.cases.items())
    return f"- **{item.rule}** ({counts}): {item.reason}"


if __name__ == "__main__":
    (ROOT / "docs" / "internals" / "placement-agreement.md").write_text(page())
