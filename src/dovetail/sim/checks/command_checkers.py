"""The promises of a single command: its replacements are ready first, and a cost action saves enough.

Prices, pods and conditions are read from the world; the cost of moving a pod is computed here independently. Uses
objects and calls, never the engine's state. Sits in sim, beside the other checkers.
"""

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Final, cast

from msgspec.structs import replace

from dovetail.api.policy import effective_policy
from dovetail.lifecycle.commands.records import Record, decode_record
from dovetail.lifecycle.messages import CreateNodeClaim, DeleteNodeClaim, Instruction, TaintNode
from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType
from dovetail.model.command import Replacement
from dovetail.model.money import Money
from dovetail.model.objects import Node, NodeClaim, Pod, is_true
from dovetail.model.settings import DOVETAIL
from dovetail.scheduling.pods.pod import is_reschedulable
from dovetail.sim.checks.promises import COST, Checker, record_on
from dovetail.sim.world.clock import SECOND
from dovetail.sim.world.host import Host
from dovetail.sim.world.store import Change

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Watch

_LAUNCH_ORDER: Final = (names.RESERVED, names.SPOT, names.ON_DEMAND)


class ReplacementsFirstChecker(Checker):
    """Candidates go only after all replacements of their command are initialized (docs/rules.md#carrying-out)."""

    rule = "replacements-first"
    follows = ("NodeClaim",)

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._ready: dict[str, int] = {}

    def changed(self, change: Change) -> None:
        """Follow which NodeClaims are initialized; the engine may not know yet that one has just gone."""
        claim = cast("NodeClaim | None", change.new)
        if claim is not None and is_true(claim.status.conditions, names.CONDITION_INITIALIZED):
            self._ready[change.key] = 1 << 62
        elif change.key in self._ready:
            self._ready[change.key] = min(self._ready[change.key], self.world.now)

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Check the deletion of a command's node; a rollback deletes replacements, which is allowed."""
        if not isinstance(instruction, DeleteNodeClaim):
            return
        claim = self.store.claims.get(instruction.name)
        node = self.store.nodes.get(claim.status.node_name) if claim is not None else None
        record = record_on(node)
        if record is None or record.id != instruction.command_id or instruction.name in record.replacements:
            return
        edge = self.world.now - self.watch.lag
        missing = [name for name in record.replacements if self._ready.get(name, -(1 << 62)) < edge]
        if missing:
            self.broken(f"{instruction.name} is deleted before {', '.join(missing)} of {record.id} is initialized")


class SavingsChecker(Checker):
    """A cost action saves at least its pools' thresholds times the disruption cost.

    Design: docs/rules.md#price; savings-threshold.
    """

    rule = "savings-threshold"
    follows: tuple[str, ...] = ("Pod", "Node")

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._costs: dict[str, tuple[Money, Fraction]] = {}
        self._spent: dict[str, dict[str, Money]] = {}
        self._bound: dict[str, int] = {}
        self._left: dict[str, tuple[int, Node]] = {}
        self._catalogues: list[tuple[int, Catalogue]] = []

    def changed(self, change: Change) -> None:
        """Note when pods came and nodes went: the newest may not be known yet."""
        if change.kind == "Node":
            if change.new is None:
                edge = self.world.now - self.watch.lag
                self._left = {name: left for name, left in self._left.items() if left[0] > edge}
                self._left[change.key] = (self.world.now, cast("Node", change.old))
            return
        old, new = cast("Pod | None", change.old), cast("Pod | None", change.new)
        if new is None:
            self._bound.pop(change.key, None)
        elif new.spec.node_name and old is not None and not old.spec.node_name:
            self._bound[change.key] = self.world.now

    def outside(self) -> None:
        """Keep the current prices: they may be about to change."""
        self._catalogues_lately()

    def _catalogues_lately(self) -> list[Catalogue]:
        now, current = self.world.now, self.world.cloud.seen_catalogue()
        if not self._catalogues or self._catalogues[-1][1] is not current:
            self._catalogues.append((now, current))
        while len(self._catalogues) > 1 and self._catalogues[1][0] <= now - self.watch.lag:
            del self._catalogues[0]
        return [catalogue for _, catalogue in self._catalogues]

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Judge a deletion by its first taint, a replacement by what it may launch.

        Only by list prices: under commitments a dearer type may be the one that is paid for already.
        """
        if self.world.cloud.meter is not None:
            return
        if isinstance(instruction, TaintNode) and not self.watch.is_karpenters(instruction.command_id):
            record = decode_record(instruction.record)
            if record is not None and record.method in COST and record.id not in self._costs:
                self._begin(record)
        elif isinstance(instruction, CreateNodeClaim) and instruction.command_id in self._costs:
            self._launch(instruction.command_id, instruction.name, instruction.replacement)

    def _begin(self, record: Record) -> None:
        price = max(self._price_of(record, catalogue) for catalogue in self._catalogues_lately())
        required = sum((self._required(entry.node, entry.claim) for entry in record.nodes), Fraction(0))
        if self._may_have_wasted(record):
            required = Fraction(0)
        self._costs[record.id] = (price, required)
        if not record.replacements and price < required:
            self.broken(f"{record.id} saves {_dollars(price)} an hour; {_dollars(required)} are asked for")

    def _may_have_wasted(self, record: Record) -> bool:
        """Return whether the nodes can have wasted what their disruption is worth (docs/rules.md#waste).

        The bound is their price over their whole life.
        """
        wasted = asked = Fraction(0)
        for entry in record.nodes:
            claim = self.store.claims.get(entry.claim)
            born = None if claim is None else claim.metadata.creation_timestamp
            pools = [] if claim is None else self.watch.pools_lately(claim.metadata.labels.get(names.NODEPOOL, ""))
            prices = [effective_policy(pool, DOVETAIL).disruption_price for pool in pools]
            given = [price for price in prices if price is not None]
            if born is None or not given:
                return False
            hours = Fraction(self._wasting(self.world.clock.since_start(born)), 3600 * SECOND)
            one = replace(record, nodes=(entry,))
            wasted += hours * max(self._price_of(one, catalogue) for catalogue in self._catalogues_lately())
            asked += min(given) * self._disturbed(entry.node)
        return wasted >= asked

    def _wasting(self, born: int) -> int:
        """Return for how long a node may have wasted money, at most."""
        return self.world.now - born

    def _disturbed(self, node: str) -> Fraction:
        """Return the minimum cost of disrupting a node, whatever its age, without pods that have just arrived."""
        edge = self.world.now - self.watch.lag
        pods = [pod for key, pod in self.store.pods_on.get(node, {}).items() if self._bound.get(key, 0) <= edge]
        return sum((_pod_cost(pod) for pod in pods if is_reschedulable(pod)), Fraction(0))

    def _launch(self, ident: str, name: str, wanted: Replacement) -> None:
        """Check the most expensive machine that may be launched: every requested type must save enough."""
        price, required = self._costs[ident]
        spent = min(
            max((self._launch_price(kind, wanted, catalogue) for kind in wanted.instance_types), default=0)
            for catalogue in self._catalogues_lately()
        )
        self._spent.setdefault(ident, {})[name] = spent
        saved = price - sum(self._spent[ident].values())
        if saved < required:
            self.broken(f"{ident} saves {_dollars(saved)} an hour at least; {_dollars(required)} are asked for")

    def _price_of(self, record: Record, catalogue: Catalogue) -> Money:
        kinds = {kind.name: kind for kind in catalogue.instance_types}
        total = 0
        for entry in record.nodes:
            node = self.store.nodes.get(entry.node) or self._lately_left(entry.node)
            labels = node.metadata.labels if node is not None else {}
            kind = kinds.get(labels.get(names.INSTANCE_TYPE, ""))
            for offering in kind.offerings if kind is not None else ():
                if (offering.zone, offering.capacity_type) == (labels[names.ZONE], labels[names.CAPACITY_TYPE]):
                    total += offering.price
                    break
        return total

    def _lately_left(self, name: str) -> Node | None:
        """Return a node that has gone so shortly before that the controller may not know it."""
        left = self._left.get(name)
        return left[1] if left is not None and left[0] > self.world.now - self.watch.lag else None

    def _launch_price(self, name: str, wanted: Replacement, catalogue: Catalogue) -> Money:
        """Return the highest zone price of the capacity type that would launch; None if none can."""
        kind: InstanceType | None = next((k for k in catalogue.instance_types if k.name == name), None)
        for capacity_type in _LAUNCH_ORDER if kind is not None else ():
            assert kind is not None
            prices = [
                offering.price
                for offering in kind.offerings
                if offering.capacity_type == capacity_type
                and offering.available
                and (not wanted.capacity_types or capacity_type in wanted.capacity_types)
                and (not wanted.zones or offering.zone in wanted.zones)
            ]
            if prices:
                return max(prices)
        return 0

    def _required(self, node: str, claim_name: str) -> Fraction:
        claim = self.store.claims.get(claim_name)
        if claim is None:
            return Fraction(0)
        policies = [
            effective_policy(pool, DOVETAIL)
            for pool in self.watch.pools_lately(claim.metadata.labels.get(names.NODEPOOL, ""))
        ]
        threshold = min((policy.savings_threshold for policy in policies), default=0)
        edge = self.world.now - self.watch.lag
        pods = [
            pod
            for key, pod in self.store.pods_on.get(node, {}).items()
            if is_reschedulable(pod) and self._bound.get(key, 0) <= edge
        ]
        total = sum((_pod_cost(pod) for pod in pods), Fraction(0))
        return threshold * total * min(self._life_left(claim, policy.expire_after) for policy in policies)

    def _life_left(self, claim: NodeClaim, expire_after: int | None) -> Fraction:
        """Return the share of its life that a node has left once the lag is over; of its own expiry or its pool's."""
        spans = [span for span in (expire_after, self.world.karpenter.expiry_of(claim)) if span]
        born = claim.metadata.creation_timestamp
        if not spans or born is None:
            return Fraction(1)
        age = self.world.now - self.world.clock.since_start(born) + self.watch.lag
        return max(Fraction(0), min(Fraction(span - age, span) for span in spans))


def _pod_cost(pod: Pod) -> Fraction:
    """Return what a pod's move costs (docs/rules.md#cost)."""
    notes = pod.metadata.annotations
    text = notes.get("karpenter.sh/disruption-cost", notes.get("controller.kubernetes.io/pod-deletion-cost", "0"))
    given = int(text) if re.fullmatch(r"[+-]?[0-9]{1,10}", text) else 0
    cost = 1 + Fraction(pod.spec.priority or 0, 2**25) + Fraction(given, 2**27)
    return min(max(cost, Fraction(-10)), Fraction(10))


def _dollars(amount: Money | Fraction) -> str:
    return f"${float(amount) / 10**18:.4f}"
