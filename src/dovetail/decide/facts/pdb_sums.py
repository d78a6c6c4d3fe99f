"""Can a PodDisruptionBudget ever allow an eviction? The arithmetic, in words, and what to change.

As the disruption controller of Kubernetes computes it: percentages are of the pods that their controllers want, rounded
up; `minAvailable` as a number counts pods. Sits in decide, at the bottom; `plan.blocking.blockers` asks it, too.
"""

import msgspec

from dovetail.model.objects import PodDisruptionBudget


class PdbSum(msgspec.Struct, frozen=True, kw_only=True):
    """What a PDB allows if every pod is healthy: `spare` pods may be unavailable."""

    pods: int
    spare: int
    why: str
    remedy: str

    @property
    def impossible(self) -> bool:
        """Return whether it allows nothing even with every pod healthy."""
        return self.spare <= 0


def pdb_sum(pdb: PodDisruptionBudget, pods: int) -> PdbSum:
    """Compute what a PDB allows at best; `pods`: how many it selects, if its status does not say."""
    expected = pdb.status.expected_pods or pods
    most, least = pdb.spec.max_unavailable, pdb.spec.min_available
    if most is not None:
        spare = _share(most, expected)
        shown = f"maxUnavailable {most}{_of(most, spare, expected)}"
        why = f"{shown} of {_pods(expected)} lets {_count(spare)} be away"
        return PdbSum(pods=expected, spare=min(spare, expected), why=why, remedy="set maxUnavailable to 1")
    needed = _share(1 if least is None else least, expected)
    spare = max(0, expected - needed)
    shown = f"minAvailable {least}{_of(least, needed, expected)}"
    why = f"{shown} of {_pods(expected)} leaves {_count(spare)} to be away"
    more = f"run {needed + 1} replicas" if not isinstance(least, str) else "run more replicas"
    remedy = f"write maxUnavailable: 1 instead of minAvailable, or {more}"
    return PdbSum(pods=expected, spare=spare, why=why, remedy=remedy)


def _share(amount: str | int, pods: int) -> int:
    if isinstance(amount, int):
        return amount
    text = amount.strip()
    try:
        return -(-int(text[:-1]) * pods // 100) if text.endswith("%") else int(text)
    except ValueError:
        return 0


def _of(amount: str | int | None, number: int, pods: int) -> str:
    percent = isinstance(amount, str) and amount.strip().endswith("%")
    return f" (rounded up: {number})" if percent and pods else ""


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"


def _count(number: int) -> str:
    return "none" if number == 0 else str(number)
