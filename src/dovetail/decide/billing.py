"""What the nodes of a round really cost, and what changes when some go and others come: exact, by whole bills.

Without commitments a bill is a sum of prices. With them a node is worth its *marginal* price: the bill with it less the
bill without it. Savings of a command are the bill before less the bill after; a launch costs what it adds to the bill
once the nodes have gone. A NodeClaim is launched as the cheapest of its types by list price, whatever is covered; so
types that would be launched in place of the best one are dropped. `model.commitments` makes the bills; nodes that leave
anyway are in none of them, and machines that commands in flight launch are in all. Sits in decide, above the facts,
below the scene.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed
from fractions import Fraction

from msgspec.structs import replace

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.model import names
from dovetail.model.cached import cached
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.command import Replacement
from dovetail.model.commitments import Bill, BilledMachine, Bills, Commitment
from dovetail.model.money import UNIT, Money, nearest
from dovetail.scheduling.launch.paid_types import PaidTypes, at_price
from dovetail.scheduling.result import NewNode, launchable, worst_offering


class Billing:
    """The bill of one round's nodes; `catalogue` has the prices that are paid.

    `launching`: what commands in flight launch and nobody sees yet. It uses commitments up, but is not paid for now.
    """

    def __init__(
        self, nodes: Sequence[NodeFacts], catalogue: Catalogue, bills: Bills, launching: Sequence[Replacement] = ()
    ) -> None:
        self._types, self._bills = PaidTypes(catalogue), bills
        self._machines: dict[str, BilledMachine] = {}
        self._counts: Counter[BilledMachine] = Counter()
        self._alone: dict[BilledMachine, Fraction] = {}
        self._leaving: set[str] = set()
        for facts in nodes:
            region = facts.labels.get(names.REGION, "")
            bought = (facts.instance_type, facts.pool_name, facts.zone, facts.capacity_type)
            machine = self._types.bought(*bought, region)
            if machine is not None:
                self._machines[facts.name] = machine
                self._counts[machine] += not facts.marked
                if facts.marked:
                    self._leaving.add(facts.name)
        for replacement in launching:
            machine = self._launched(replacement)
            self._counts.update(() if machine is None else (machine,))

    @property
    def has_commitments(self) -> bool:
        """Return whether prices depend on the other nodes."""
        return bool(self._bills.commitments)

    @cached
    def bill(self) -> Bill:
        """Return the bill of all nodes, those that are leaving too."""
        return self._bills.bill(Counter(self._machines.values()))

    @property
    def staying(self) -> Money:
        """Return the bill of the nodes that are not leaving: what commands save is a difference of these."""
        return nearest(self._bills.total(self._counts))

    def price(self, name: str) -> Money | None:
        """Return what a node's going would save by itself; None: its price is unknown."""
        machine = self._machines.get(name)
        if machine is None:
            return None
        found = self._alone.get(machine)
        if found is None:
            found = self._alone[machine] = self._difference([machine], ())
        return nearest(found)

    def list_price(self, name: str) -> Money | None:
        """Return what a node costs if no commitment covers it; None: that is unknown."""
        machine = self._machines.get(name)
        return None if machine is None else machine.price + machine.extra

    def together(self, gone: Sequence[str], new: Sequence[BilledMachine] = ()) -> Money:
        """Return what is saved when some nodes go and some machines come: the bill before less the bill after."""
        return nearest(self._difference([self._machines[name] for name in gone if name in self._machines], new))

    def _difference(self, gone: Sequence[BilledMachine], new: Sequence[BilledMachine]) -> Fraction:
        counts = Counter(self._counts)
        for machine in (Counter(gone) - counts).elements():
            counts[machine] += 1  # it leaves anyway, and is paid for while it is there
        after = _less(counts, gone)
        after.update(new)
        return self._bills.total(counts) - self._bills.total(after)

    @property
    def machines(self) -> Mapping[str, BilledMachine]:
        """Return what each node is billed as; those of unknown price are missing."""
        return self._machines

    def in_turn(
        self, commands: Sequence[tuple[Sequence[str], Sequence[str]]], known: Mapping[str, BilledMachine]
    ) -> list[tuple[Money, Money]]:
        """Return what commands under way take off the bill and what they add to it, one after the other.

        Each is named by the nodes that go and those that come; `known` has nodes that are not here any more.
        """
        known = {**known, **self._machines}
        going = {name for gone, _ in commands for name in gone}
        coming = {name for _, come in commands for name in come}
        here = (self._machines.keys() - self._leaving | going) - coming
        counts = Counter(known[name] for name in here if name in known)
        found = []
        for gone, come in commands:
            left = _less(counts, [known[name] for name in gone if name in known])
            after = left + Counter(known[name] for name in come if name in known)
            bills = [self._bills.total(each) for each in (counts, left, after)]
            found.append((nearest(bills[0] - bills[1]), nearest(bills[2] - bills[1])))
            counts = after
        return found

    def kept_price(self, name: str, gone: Sequence[str]) -> Money:
        """Return what one of some nodes costs if it is kept and the others go."""
        return self.together(gone) - self.together([other for other in gone if other != name])

    def launch(self, node: NewNode, *, hopeful: bool = False) -> BilledMachine | None:
        """Return the machine that a new node counts as: the cheapest type by list price, each at its highest price.

        `hopeful`: each at its lowest price, as Karpenter estimates.
        """
        return self._launch(node.pool, [kind.name for kind in node.instance_types], node.offered, hopeful=hopeful)

    def _launched(self, wanted: Replacement) -> BilledMachine | None:
        """Return the machine that a replacement counts as."""

        def offered(offer: Offering) -> bool:
            capacity, zones = wanted.capacity_types, wanted.zones
            return (not capacity or offer.capacity_type in capacity) and (not zones or offer.zone in zones)

        return self._launch(wanted.node_pool, wanted.instance_types, offered)

    def _launch(
        self, pool: str, types: Sequence[str], offered: Callable[[Offering], bool], *, hopeful: bool = False
    ) -> BilledMachine | None:
        found: list[tuple[tuple[Money, str], BilledMachine]] = []
        for name in types:
            paid = self._types.kind_of(name, pool)
            offers = _launchable(paid, offered)
            offering = min(offers, key=_hoped_for, default=None) if hopeful else worst_offering(offers)
            if offering is not None:
                assert paid is not None
                found.append(((offering.price, name), self._types.machine(paid, offering)))
        return min(found)[1] if found else None

    def saved_by(self, gone: Sequence[str], new_nodes: Sequence[NewNode], *, hopeful: bool = False) -> Money:
        """Return what is saved when nodes go and these new ones are launched."""
        machines = [machine for node in new_nodes if (machine := self.launch(node, hopeful=hopeful)) is not None]
        return self.together(gone, machines)

    def added(self, new_nodes: Sequence[NewNode]) -> list[Money | None]:
        """Return what each new node adds to the bill, beside those before it; None: its price is unknown.

        Each is launched as Karpenter estimates: the cheapest type by list price.
        """
        counts, found = Counter(self._counts), []
        for node in new_nodes:
            machine = self.launch(node, hopeful=True)
            found.append(None if machine is None else _AddedCost(self._bills, counts)(machine))
            counts = counts if machine is None else counts + Counter([machine])
        return found

    def repriced(self, gone: Sequence[str], new_nodes: Sequence[NewNode]) -> tuple[NewNode, ...]:
        """Return new nodes whose types cost what they add to the bill once the nodes have gone, cheapest first.

        Each is priced beside those before it. Types that would be launched in place of the best one are dropped.
        """
        counts = _less(self._counts, [self._machines[name] for name in gone if name in self._machines])
        found = []
        for node in new_nodes:
            made = self._repriced(node, counts)
            found.append(made)
            machine = self.launch(made)
            if machine is not None:
                counts = counts + Counter([machine])
        return tuple(found)

    def _repriced(self, node: NewNode, counts: "Counter[BilledMachine]") -> NewNode:
        """Return a new node at the prices that it adds; on demand only, if that is covered and cheaper than spot."""
        cost = _AddedCost(self._bills, counts)
        made = self._at_costs(node, cost)
        if not {names.SPOT, names.ON_DEMAND} <= set(node.capacity_types):
            return made
        narrowed = node.narrowed(names.ON_DEMAND)
        covered = self._at_costs(narrowed.with_types(narrowed.offered_types()), cost)
        return covered if _least(covered) < _least(made) else made

    def _at_costs(self, node: NewNode, cost: "_AddedCost") -> NewNode:
        kinds = [self._at_cost(kind, node, cost) for kind in node.instance_types]
        fresh = replace(node, instance_types=(), prices=None)
        ranked = [(launch.amount, kind.name, kind) for kind in kinds if (launch := fresh.worst_launch_price(kind))]
        ranked.sort(key=lambda entry: entry[:2])
        best_first = [kind for _, _, kind in ranked]
        return replace(fresh, instance_types=tuple(self._not_undercut(best_first, node)))

    def _at_cost(self, kind: InstanceType, node: NewNode, cost: "Callable[[BilledMachine], Money]") -> InstanceType:
        paid = self._types.kind_of(kind.name, node.pool) or kind
        wanted = frozenset(map(id, _launchable(paid, node.offered)))
        offers = tuple(
            at_price(offer, cost(self._types.machine(paid, offer))) if id(offer) in wanted else offer
            for offer in paid.offerings
        )
        return changed(kind, offerings=offers)

    def _not_undercut(self, kinds: Sequence[InstanceType], node: NewNode) -> list[InstanceType]:
        """Keep the best type and those that are not cheaper than it by list price: it is the one to be launched."""
        if not kinds:
            return []
        least, counted = self._list_prices(kinds[0], node)
        kept = [kinds[0]]
        for kind in kinds[1:]:
            price, worst = self._list_prices(kind, node)
            if price >= least and worst >= counted:
                kept.append(kind)
        return kept

    def _list_prices(self, kind: InstanceType, node: NewNode) -> tuple[Money, Money]:
        """Return the lowest price at which a type could be launched, and the one that it counts with."""
        paid = self._types.kind_of(kind.name, node.pool) or kind
        offers = _launchable(paid, node.offered)
        worst = worst_offering(offers)
        return min((offering.price for offering in offers), default=0), 0 if worst is None else worst.price

    def coverage(self, name: str) -> tuple[tuple[str, Fraction], ...]:
        """Return the commitments that cover machines like a node, each with the share of them that it covers."""
        machine = self._machines.get(name)
        if machine is None:
            return ()
        count = sum(1 for other in self._machines.values() if other == machine)
        return tuple((commitment, part / count) for commitment, part in self.bill.covered.get(machine, ()))


class _AddedCost:
    """What one more machine adds to a bill."""

    def __init__(self, bills: Bills, counts: "Counter[BilledMachine]") -> None:
        self._bills, self._counts, self._base = bills, counts, bills.total(counts)
        self._known: dict[BilledMachine, Money] = {}

    def __call__(self, machine: BilledMachine) -> Money:
        if not self._bills.may_cover(machine):
            return machine.price + machine.extra
        found = self._known.get(machine)
        if found is None:
            more = self._counts + Counter([machine])
            found = self._known[machine] = nearest(self._bills.total(more) - self._base)
        return found


def _least(node: NewNode) -> float:
    launch = node.worst_launch_price(node.instance_types[0]) if node.instance_types else None
    return float("inf") if launch is None else launch.amount


def _launchable(kind: InstanceType | None, offered: Callable[[Offering], bool]) -> list[Offering]:
    return [] if kind is None else [offer for offer in kind.offerings if launchable(offer) and offered(offer)]


def _hoped_for(offering: Offering) -> tuple[bool, Money, str]:
    return (offering.capacity_type != names.RESERVED, offering.price, offering.zone)


def _less(counts: Mapping[BilledMachine, int], gone: Sequence[BilledMachine]) -> "Counter[BilledMachine]":
    left = Counter(counts)
    left.subtract(Counter(gone))
    return +left


class MarginalFacts:
    """Nodes with their marginal prices; facts whose price has not changed stay the same objects from round to round."""

    def __init__(self) -> None:
        self._made: dict[NodeFacts, NodeFacts] = {}
        self._bills = Bills(())

    def bills(self, commitments: tuple[Commitment, ...]) -> Bills:
        """Return the bills to use: those of earlier rounds, if the commitments are the same."""
        if self._bills.commitments != commitments:
            self._bills = Bills(commitments)
        return self._bills

    def of(self, nodes: Sequence[NodeFacts], billing: Billing) -> list[NodeFacts]:
        """Return the nodes at the prices that their going would save."""
        made: dict[NodeFacts, NodeFacts] = {}
        for facts in nodes:
            price, listed = billing.price(facts.name), billing.list_price(facts.name)
            known = self._made.get(facts)
            if price is None or price == facts.price == listed:
                known = facts
            elif known is None or (known.price, known.list_price) != (price, listed):
                known = replace(facts, price=price, price_float=price / UNIT, list_price=listed)
            made[facts] = known
        self._made = made
        return [made[facts] for facts in nodes]
