"""Where would the pending pods go? The question of `dovetail place`, answered by the same engine.

No node is removed; pods of leaving nodes take part, as they need a place as well. Pods wait for reserved offerings.
"""

from dovetail.scheduling.entries import SimulationOptions
from dovetail.scheduling.result import PlacementResult, Unplaced
from dovetail.scheduling.simulate import simulate
from dovetail.scheduling.snapshot import Snapshot


def place(snapshot: Snapshot) -> PlacementResult:
    """Place the pending pods; pods that can't be helped are listed with the reason."""
    found = simulate(snapshot, (), SimulationOptions(strict_reserved=True))
    ignored = tuple(
        Unplaced(pod=pod, forgiven=True, explain=lambda why=why: f"not looked at: {why}")  # type: ignore[misc]
        for pod, why in snapshot.ignored
    )
    return PlacementResult(existing=found.placements, new=found.new_nodes, unplaced=(*found.unplaced, *ignored))
