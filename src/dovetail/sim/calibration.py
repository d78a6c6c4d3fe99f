"""How well a replay of the policy that is in force agrees with what a cluster really costs.

Nothing is recommended on a replay that differs from reality by more than a tenth: what it says about another policy
would be about another cluster. Pure. Sits in sim; `whatif` has it for captures, `replay` for recordings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

ERROR_MAX: Final = 0.10
"""The largest error of the bill at which a replay counts as reliable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What is real, what was simulated, by which share they differ, and whether to rely on the replay."""

    real: Mapping[str, float]
    simulated: Mapping[str, float]
    reliable: bool
    why: str

    @property
    def error(self) -> dict[str, float | None]:
        """Return by which share of the real figure each simulated one is off; None where the real one is 0."""
        return {key: _share(self.simulated[key], real) for key, real in self.real.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return CALIBRATION of the contract."""
        return {
            "real": dict(self.real),
            "simulated": dict(self.simulated),
            "error": self.error,
            "reliable": self.reliable,
            "why": self.why,
        }


def _share(simulated: float, real: float) -> float | None:
    if real:
        return round(abs(simulated - real) / real, 4)
    return 0.0 if simulated == 0 else None


def calibrate_rate(real: float, simulated: float, today: str) -> Calibration:
    """Compare what a captured cluster costs per hour now with the end of a replay of its own policy."""
    rates = f"The replay of today's policy ({today}) ends at ${simulated:.2f}/h; the cluster costs ${real:.2f}/h now"
    error = _share(simulated, real)
    reliable = error is not None and error <= ERROR_MAX and real > 0
    if not real:
        why = "No machine of the capture has a known price, so the replay can't be compared with it."
    elif reliable:
        why = f"{rates}, so they agree within {max(1, round(100 * (error or 0)))} %."
    else:
        more = "more" if simulated > real else "less"
        why = f"{rates}. That is {100 * (error or 0):.0f} % {more}: {_CAUSES[simulated > real]}"
    return Calibration(
        real={"costPerHour": round(real, 4)},
        simulated={"costPerHour": round(simulated, 4)},
        reliable=reliable,
        why=why,
    )


_CAUSES: Final = {
    False: (
        "something that the capture does not show keeps its nodes from being consolidated as the policy allows, or "
        "they changed just before. Don't rely on this comparison."
    ),
    True: "the cluster has just shrunk, or the capture lacks something. Don't rely on this comparison.",
}


def calibrate_stretch(real: Mapping[str, float], simulated: Mapping[str, float], today: str) -> Calibration:
    """Compare what a recording says came of a policy with a replay of the same load under the same policy."""
    error = _share(simulated["cost"], real["cost"])
    reliable = error is not None and error <= ERROR_MAX and real["cost"] > 0
    told = (
        f"Simulated {today}: ${simulated['cost']:.3f} and {simulated['podsDisrupted']:.0f} restarts; recorded: "
        f"${real['cost']:.3f} and {real['podsDisrupted']:.0f}"
    )
    if not real["cost"]:
        why = "No machine of the recording has a known price, so the replay can't be compared with it."
    elif reliable:
        why = f"{told}. The replay is within {max(1, round(100 * (error or 0)))} % of the real bill."
    else:
        why = f"{told}. The bill is off by {100 * (error or 0):.0f} %: don't rely on this replay."
    return Calibration(real=dict(real), simulated=dict(simulated), reliable=reliable, why=why)
