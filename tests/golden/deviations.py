"""Where we answer otherwise than the golden files, case by case, each with its reason: nothing else may differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deviation:
    """Why some questions of some cases are answered otherwise, and how many they are."""

    cases: dict[str, int]
    rule: str
    reason: str


VOLUMES = Deviation(
    cases={"027": 10, "045": 8},
    rule="zone of bound volumes",
    reason=(
        "The client that the recordings were made with did not find PersistentVolumes (Karpenter asks for them with a "
        "namespace in the key; a real client drops it), so Karpenter placed these pods as if their volume were "
        "anywhere and counted them where they run. We keep a pod in the zone of its volume, as Karpenter does in a "
        "cluster. With the "
        "lookup broken in the same way the reference packer gives all of the recorded answers."
    ),
)

DEVIATIONS: tuple[Deviation, ...] = (VOLUMES,)


def expected_differences(case: str) -> int:
    """How many questions of a case we answer otherwise, on purpose."""
    return sum(deviation.cases.get(case, 0) for deviation in DEVIATIONS)
