"""One shape for the answers of both packers and of Karpenter, and what lies between a simulation and a command.

Karpenter's files hold what came of each simulation: for one node that means after the price filter. That filter is
repeated here, on its own, so that the simulations themselves can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dovetail.model.catalogue import InstanceType
from dovetail.model.names import CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, RESERVED, SPOT, ZONE
from dovetail.model.objects import Node, condition, is_true
from tests.reference.claims import RESERVATION_ID, Kind, is_launchable, missing_values
from tests.reference.nodes import StateNode
from tests.reference.packer import Packing, ReferencePacker
from tests.reference.pods import go_duration
from tests.reference.quantities import amounts
from tests.reference.requirements import Requirements, requirement
from tests.support.golden_cases import GoldenCase

Entry = tuple[str, str, tuple[str, ...], int | None]
SPOT_TYPES_NEEDED = 15


@dataclass(frozen=True)
class NewAnswer:
    """A new node: types cheapest first, pods in the order in which they were placed."""

    pool: str
    types: tuple[str, ...]
    requirements: tuple[Entry, ...]
    requests: tuple[tuple[str, int], ...]
    pods: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """Where all pods went. `homeless`: pods without a place, or only one on a node that is not initialized."""

    existing: tuple[tuple[str, tuple[str, ...]], ...]
    new: tuple[NewAnswer, ...]
    homeless: tuple[str, ...] = ()
    pods: int = 0


@dataclass(frozen=True)
class Outcome:
    """What comes of one simulation: a command, or the reason why there is none."""

    what: str
    answer: Answer | None = None


def ordered_requests(requests: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return requests in a form that compares; what is not asked for is left out."""
    return tuple(sorted((name, amount) for name, amount in requests.items() if amount))


# Karpenter


def karpenter_new(entry: Mapping[str, Any]) -> NewAnswer:
    """Return a new node of Karpenter's files. Its harness leaves the reservation label without a name."""
    requirements = sorted(
        (item["key"] or RESERVATION_ID, item["operator"], tuple(item.get("values", ())), item.get("minValues"))
        for item in entry["requirements"]
    )
    return NewAnswer(
        pool=entry["nodePool"],
        types=tuple(entry["instanceTypes"]),
        requirements=tuple(requirements),
        requests=ordered_requests(amounts(entry["requests"])),
        pods=tuple(entry["pods"]),
    )


def karpenter_answer(existing: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> Answer:
    """Return a placement of Karpenter's files."""
    return Answer(
        existing=tuple(sorted((item["node"], tuple(item["pods"])) for item in existing)),
        new=tuple(sorted((karpenter_new(item) for item in new), key=lambda item: (item.pool, item.pods))),
    )


_REASONS = (
    ("Not all pods would schedule", "pods left over"),
    ("Can't remove without creating", "too many new nodes"),
    ("Can't replace with a cheaper node", "not cheaper"),
    ("SpotToSpotConsolidation is disabled", "spot to spot is off"),
    ("SpotToSpotConsolidation requires", "too few spot types"),
    ("Filtering by price: minValues", "too few values once cheaper"),
)


def karpenter_outcome(entry: Mapping[str, Any]) -> Outcome:
    """Return what came of one candidate in Karpenter's files."""
    command = entry.get("command")
    if command is None:
        message = next(text for text in entry["messages"] if text.startswith(tuple(start for start, _ in _REASONS)))
        return Outcome(next(what for start, what in _REASONS if message.startswith(start)))
    answer = karpenter_answer(command.get("existingPlacements", ()), command.get("replacements", ()))
    return Outcome(command["decision"], answer)


def karpenter_homeless(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the pods that Karpenter names as left over (it names five at most)."""
    text = next((text for text in entry.get("messages", ()) if text.startswith("Not all pods would schedule")), "")
    return tuple(sorted(part.split()[-1] for part in text.split(" => ")[:-1]))


# The reference packer


def reference_answer(packing: Packing) -> Answer:
    """Return an answer of the reference packer."""
    return Answer(
        existing=tuple(sorted((node, tuple(pods)) for node, pods in packing.existing.items())),
        new=tuple(
            sorted(
                (
                    NewAnswer(
                        pool=node.pool,
                        types=tuple(node.instance_types),
                        requirements=tuple(node.requirements),
                        requests=ordered_requests(node.requests),
                        pods=tuple(node.pods),
                    )
                    for node in packing.new
                ),
                key=lambda item: (item.pool, item.pods),
            )
        ),
        homeless=tuple(sorted([*packing.unplaced, *packing.uninitialized])),
        pods=packing.pods,
    )


def closed_nodes(case: GoldenCase, packer: ReferencePacker) -> list[str]:
    """Return nodes within their pool's consolidateAfter: closed to pods that consolidation would move."""
    pools = {pool.metadata.name: pool for pool in packer.pools}
    return [state.name for state in packer.nodes if _within_consolidate_after(case, state, pools)]


def _within_consolidate_after(case: GoldenCase, state: StateNode, pools: Mapping[str, Any]) -> bool:
    if state.claim is None or state.pool not in pools:
        return False
    seconds = go_duration(pools[state.pool].spec.disruption.consolidate_after or "0s")
    conditions = state.claim.status.conditions
    if seconds is None or not is_true(conditions, "Initialized"):
        return False
    initialized = condition(conditions, "Initialized")
    last = state.claim.status.last_pod_event_time or (initialized.last_transition_time if initialized else None)
    return last is not None and case.now - last < timedelta(seconds=seconds)


# From a simulation to a command


class Pricing:
    """Prices of a case's nodes and types."""

    def __init__(self, case: GoldenCase) -> None:
        self.kinds = {kind.name: Kind(kind) for kind in case.catalogue.instance_types}
        self._spot_to_spot = case.settings.spot_to_spot_consolidation
        self._nodes = {node.metadata.name: node for node in case.cluster.nodes}

    def _price_now(self, node: Node) -> float:
        """Return what a node costs: the first offering of its zone and capacity type, available or not."""
        labels = node.metadata.labels
        kind: InstanceType = self.kinds[labels[INSTANCE_TYPE]].type
        for offering in kind.offerings:
            if (offering.zone, offering.capacity_type) == (labels[ZONE], labels[CAPACITY_TYPE]):
                return offering.price_float
        return 0.0

    def worst(self, name: str, wanted: Requirements) -> float:
        """Return the most expensive offering of the capacity type that would launch."""
        offered = [item for item in self.kinds[name].offered(wanted) if is_launchable(item)]
        for capacity_type in (RESERVED, SPOT, ON_DEMAND):
            prices = [item.price_float for item in offered if item.capacity_type == capacity_type]
            if prices:
                return max(prices)
        return float("inf")

    def cost_outcome(self, answer: Answer, candidate: str) -> Outcome:
        """Return what Karpenter's single-node consolidation makes of a simulation whose pods all have a place."""
        if not answer.new:
            return Outcome("delete", answer)
        if len(answer.new) > 1:
            return Outcome("too many new nodes")
        node, new = self._nodes[candidate], answer.new[0]
        wanted = _parsed(new.requirements)
        capacity = wanted.get(CAPACITY_TYPE)
        price = self._price_now(node)
        types: Sequence[str] = new.types
        spot_to_spot = node.metadata.labels[CAPACITY_TYPE] == SPOT and capacity.has(SPOT)
        if spot_to_spot:
            if not self._spot_to_spot:
                return Outcome("spot to spot is off")
            wanted.add([requirement(CAPACITY_TYPE, "In", (SPOT,))])
            types = [name for name in types if self.kinds[name].offered(wanted)]
        types = [name for name in types if self.worst(name, wanted) < price]
        if missing_values([self.kinds[name] for name in types], wanted):
            return Outcome("too few values once cheaper")
        if not types:
            return Outcome("not cheaper")
        if spot_to_spot:
            if len(types) < SPOT_TYPES_NEEDED:
                return Outcome("too few spot types")
            types = types[: max(SPOT_TYPES_NEEDED, self._needed(types, wanted))]
        elif capacity.has(SPOT) and capacity.has(ON_DEMAND):
            wanted.add([requirement(CAPACITY_TYPE, "In", (SPOT,))])
        entries = tuple(sorted(entry for item in wanted for entry in item.printed()))
        kept = NewAnswer(new.pool, tuple(types), entries, new.requests, new.pods)
        return Outcome("replace", Answer(answer.existing, (kept,)))

    def _needed(self, types: Sequence[str], wanted: Requirements) -> int:
        """Return how many of the types, from the front, meet minValues."""
        if not wanted.has_min_values():
            return 0
        for count in range(1, len(types) + 1):
            if not missing_values([self.kinds[name] for name in types[:count]], wanted):
                return count
        return len(types)


def _parsed(entries: Sequence[Entry]) -> Requirements:
    return Requirements(requirement(key, operator, values, least) for key, operator, values, least in entries)
