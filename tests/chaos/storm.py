"""What goes wrong and when: a list of faults drawn from a seed. It does not depend on HTTP or processes."""

import random
from dataclasses import dataclass, field
from typing import Final

STORM_SECONDS: Final = 12.0
KINDS: Final = (
    "slow", "throttled", "failing", "forbidden", "html", "garbage", "cut", "silent", "stopped", "token", "clock",
)  # fmt: skip
PLURALS: Final = (
    "pods", "nodes", "nodeclaims", "nodepools", "poddisruptionbudgets", "daemonsets", "leases", "replicasets",
)  # fmt: skip
GARBAGE: Final = (
    b"\x00\xff garbage",
    b"[]",
    b"null",
    b"{}",
    b"<html>gateway</html>",
    b'{"type": "ADDED", "object": null}',
    b'{"type": "DELETED", "object": {"metadata": {}}}',
    b'{"type": "ERROR", "object": {"code": null}}',
    b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": 7}}}',
    b'{"type": "MODIFIED", "object": {"metadata": {"name": "\xff"}}}',
    b'{"type": "ADDED", "object": ' + b"[" * 5000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One fault that lasts for a while. `about`: a resource, or everything; `share`: the affected share of requests."""

    kind: str
    begins: float
    ends: float
    about: str = ""
    share: float = 1.0
    amount: float = 0.0

    def is_on(self, at: float) -> bool:
        return self.begins <= at < self.ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """A change that users or workloads make during the test."""

    at: float
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All faults and changes for one seed."""

    seed: int
    troubles: tuple[Trouble, ...]
    deeds: tuple[Deed, ...]
    lines: dict[str, int] = field(default_factory=dict)


def draw(seed: int) -> Plan:
    """Draw a plan; the same seed returns the same plan."""
    rng = random.Random(f"chaos-{seed}")
    # Every eleventh seed guarantees a kind; the other kinds are drawn at random.
    kinds = [KINDS[seed % len(KINDS)], *rng.sample(KINDS, k=rng.randint(1, 4))]
    troubles = tuple(_trouble(kind, rng) for kind in dict.fromkeys(kinds))
    whats = ["drift", "empty", "guard", *rng.choices(("drift", "empty", "guard", "late-guard"), k=rng.randint(1, 3))]
    deeds = tuple(Deed(at=round(rng.uniform(0.0, STORM_SECONDS * 0.8), 2), what=what) for what in whats)
    return Plan(seed=seed, troubles=troubles, deeds=tuple(sorted(deeds, key=lambda deed: deed.at)))


def _trouble(kind: str, rng: random.Random) -> Trouble:
    begins = rng.uniform(0.0, STORM_SECONDS * 0.5)
    ends = min(STORM_SECONDS, begins + rng.uniform(2.0, STORM_SECONDS))
    about = rng.choice(("", "", *PLURALS))
    share = rng.choice((0.2, 0.5, 1.0))
    amount = 0.0
    match kind:
        case "slow":
            amount = rng.choice((0.2, 0.6, 1.2))  # at a deadline of 4 s: equals 1, 3 and 6 s of 20 s
        case "forbidden":
            about = rng.choice(PLURALS)
        case "silent":
            about, share = rng.choice(("", "pods", "nodes")), 1.0
        case "stopped":
            amount = rng.uniform(2.0, 10.0)
        case "clock":
            amount = rng.choice((-3600.0, -5.0, 5.0, 3600.0, 86400.0))
    return Trouble(
        kind=kind, begins=round(begins, 2), ends=round(ends, 2), about=about, share=share, amount=round(amount, 2)
    )
