"""One simulation: places pods, largest first, on existing nodes, on new nodes being filled, or on further new nodes.

An overlay on the snapshot's frame: only nodes, domains and claims that this simulation touches are copied. It tries for
each pod: the first node that takes it (initialized first, then by name), the claim with the fewest pods that takes it,
a new claim of the first pool that can. Otherwise the pod gives up one preference and tries again. A pod without a place
goes to the end of the queue, until a whole pass over the queue places nothing.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from dovetail.model.settings import MinValuesPolicy
from dovetail.scheduling.entries import Entry, Lane, SimulationOptions, Touched, may_share
from dovetail.scheduling.frame import Frame
from dovetail.scheduling.launch.claims import Claim, ClaimRules, Fit, ReservedError, put_in_order
from dovetail.scheduling.launch.machines import TypeBits
from dovetail.scheduling.pods.classes import TERMINAL, TERMINATING, PodClass
from dovetail.scheduling.pods.pod import ports_clash
from dovetail.scheduling.pods.variants import NodeList, Variant
from dovetail.scheduling.topology.groups import INVERSE
from dovetail.scheduling.topology.states import GroupState

_NONE: Final[frozenset[int]] = frozenset()


class Packer:
    """See the module."""

    def __init__(
        self,
        frame: Frame,
        removed: Sequence[int],
        moving: Iterable[tuple[PodClass, int, int]],
        limits_left: dict[int, dict[str, int]],
        options: SimulationOptions,
    ) -> None:
        """Start a packing; `moving`: class, node and flags of bound pods that leave their nodes."""
        self.frame = frame
        self.removed = frozenset(removed)
        self.closed = options.closed_nodes()
        self.limits_left = limits_left
        self.count_all = frame.settings.rules.others_pods_count
        self.new_nodes_max = options.new_nodes_max
        self.launchable = options.launchable
        self.best_effort = frame.settings.min_values_policy is MinValuesPolicy.BEST_EFFORT
        ties = frame.settings.ties
        self._salt = f"{ties}/{sorted(self.removed)}" if ties else ""
        self.states: dict[int, GroupState] = {}
        self.rules = ClaimRules(frame, self.states, strict_reserved=options.strict_reserved)
        self.touched: dict[int, Touched] = {}
        self.claims: list[Claim] = []
        self._grown: tuple[Claim, ...] = ()
        self.opened = 0
        self.own_claims = 0
        self.stopped = False
        self.unplaced: list[Entry] = []
        self._moving: dict[int, list[tuple[int, int]]] = {}
        for cls, node, flags in moving:
            self._moving.setdefault(cls.id, []).append((node, flags))
        self._cursors: dict[tuple[int, bool], list[int]] = {}
        self._recorders: dict[int, list[GroupState]] = {}
        self._hopeless: set[tuple[tuple[int, bool], bool]] = set()
        self.lanes: dict[tuple[int, bool], Lane | None] = {}

    # The queue

    def prepare(self, entries: Iterable[Entry]) -> None:
        """Start counting for the rules of these pods; before any of them is placed."""
        first, lanes = self.frame.first, self.lanes
        for entry in entries:
            if entry.mark not in lanes:
                variant = first(entry.cls)
                if variant.rules:
                    self._activate(variant)
                lanes[entry.mark] = self._lane(variant, exempt=entry.exempt)

    def run(self, entries: Sequence[Entry]) -> None:
        """Place the pods, in this order; they have been prepared."""
        lanes = self.lanes
        queue: deque[Entry] = deque()
        failed_at: dict[int, int] = {}
        after = len(entries)
        for entry in entries:
            after -= 1
            lane = lanes[entry.mark]
            if lane is not None and lane.cursors[0] >= 0 and self._put_on_first_node(entry, lane):
                continue
            if not self._schedule(entry):
                queue.append(entry)
                failed_at[id(entry)] = after + len(queue)
            elif self.stopped:
                queue.extendleft(reversed(entries[len(entries) - after :]))
                break
        while queue and not self.stopped:
            entry = queue[0]
            if failed_at[id(entry)] == len(queue):
                break
            queue.popleft()
            if not self._schedule(entry):
                queue.append(entry)
                failed_at[id(entry)] = len(queue)
        self.unplaced = list(queue)

    def _lane(self, variant: Variant, *, exempt: bool) -> Lane | None:
        """Return the nodes to try for pods that only need room; None for other pods, or if no node takes one."""
        buckets = variant.buckets if variant.simple else ()
        if not buckets:
            return None
        cursors = self._cursors.setdefault((variant.id, exempt), [0])
        # Without topology rules there is one bucket.
        return Lane(buckets[0][1], variant.need, cursors, _NONE if exempt else self.closed)

    def _put_on_first_node(self, entry: Entry, lane: Lane) -> bool:
        """Place a pod that only needs room, as `_add` would; False if no node takes it."""
        nodes, need, cursors, closed = lane.nodes, lane.need, lane.cursors, lane.closed
        touched, row, removed = self.touched, self.frame.row, self.removed
        position = cursors[0]
        while position < len(nodes) or nodes.grow():
            node = nodes[position]
            if node not in removed and node not in closed:
                here = touched.get(node)
                if here is None:
                    here = touched[node] = Touched(row(node).copy())
                left = here.left
                for column, amount in need:
                    if left[column] < amount:
                        break
                else:
                    break
            position += 1
        else:
            cursors[0] = -1
            return False
        cursors[0] = position
        if here.shared:
            here = touched[node] = here.copy()
            left = here.left
        for column, amount in need:
            left[column] -= amount
        here.entries.append(entry)
        if self.states:
            for state in self._recorders_of(entry.cls):
                if state.group.will_count(node):
                    state.record_node(node)
        return True

    def _activate(self, variant: Variant) -> None:
        """Start counting for the rules of a variant; placements made before are not counted, as upstream."""
        for rule in variant.rules:
            group = rule.group
            if group.id in self.states:
                continue
            state = self.states[group.id] = GroupState(group, self._salt)
            self._recorders.clear()
            if not group.host and group.domains is not None:
                for node in self.removed:
                    state.forget_node(node)
            if self._moving:
                self._forget_moving(state)

    def _forget_moving(self, state: GroupState) -> None:
        """Remove the moving pods from a rule's counts."""
        moving, group = self._moving, state.group
        based_on = group.based_on
        near = moving if len(moving) < len(based_on) else [c for c in based_on if c in moving]
        for cls_id in near:
            if cls_id in based_on:
                for node, flags in moving[cls_id]:
                    # A terminating pod still enforces its anti-affinity but counts nowhere else.
                    if not flags & (TERMINAL if group.kind == INVERSE else TERMINATING):
                        state.forget_pod(node)

    def _recorders_of(self, cls: PodClass) -> Sequence[GroupState]:
        if not self.states:
            return ()
        found = self._recorders.get(cls.id)
        if found is None:
            near = self.frame.counting.get(cls.id, ())
            found = [self.states[group.id] for group in near if group.id in self.states]
            if cls.info.anti_affinity:
                owned = self.frame.inverse_owned(cls)
                found.extend(self.states[group.id] for group in owned if group.id in self.states)
            self._recorders[cls.id] = found
        return found

    def _schedule(self, entry: Entry) -> bool:
        mark = (entry.mark, entry.leaving)
        if mark in self._hopeless:
            return False
        variant: Variant | None = self.frame.first(entry.cls)
        if variant is not None and variant.lost:
            return False
        steady = True
        while variant is not None:
            try:
                if self._add(entry, variant):
                    return True
            except ReservedError:
                return False
            steady = steady and variant.steady
            variant = variant.after
            if variant is not None:
                self._activate(variant)
        if steady and self.rules.reservations is None:
            self._hopeless.add(mark)
        return False

    def _add(self, entry: Entry, variant: Variant) -> bool:
        node = self._find_node(variant, exempt=entry.exempt)
        if node >= 0:
            self._put_on_node(entry, variant, node)
            return True
        steady = variant.steady and self.rules.reservations is None
        put_in_order(self.claims, *self._grown)
        for claim in self.claims:
            if variant.id in claim.refused or (not self.count_all and not may_share(entry, claim)):
                continue
            fit = self._try(claim, variant)
            if fit is not None:
                self._put_on_claim(entry, variant, claim, fit)
                return True
            if steady:  # a refusal by a new node is final: it only gets fuller
                claim.refused.add(variant.id)
        return self._open_claim(entry, variant)

    def _try(self, claim: Claim, variant: Variant) -> Fit | None:
        try:
            return self.rules.fit(claim, variant)
        except ReservedError:
            return None

    # Nodes that exist

    def _find_node(self, variant: Variant, *, exempt: bool) -> int:
        buckets = variant.buckets
        if not buckets:
            return -1
        if variant.host_affinity:
            near = self._near_hosts(variant)
            if near is not None:
                return self._first_of(near, variant, exempt=exempt)
        mark = (variant.id, exempt)
        cursors = self._cursors.setdefault(mark, [0] * len(buckets))
        if cursors[0] < 0:
            return -1
        masks = self._open_domains(variant) if variant.zone_rules else ()
        best = -1
        for number, (places, nodes) in enumerate(buckets):
            if masks and not _all_open(masks, places):
                continue
            best = self._advance(variant, nodes, cursors, number, best, exempt=exempt)
        return best

    def _advance(
        self, variant: Variant, nodes: NodeList, cursors: list[int], number: int, best: int, *, exempt: bool
    ) -> int:
        """Advance a bucket's cursor to its first node that takes the variant; return the minimum of it and `best`.

        A refusal by a node is final in this simulation: free room only shrinks, and hosts only fill.
        """
        removed, touched, need = self.removed, self.touched, variant.need
        closed = _NONE if exempt else self.closed
        company = bool(variant.ports or variant.attached or variant.host_rules)
        position = cursors[number]
        while position < len(nodes) or nodes.grow():
            node = nodes[position]
            if 0 <= best <= node:
                break
            if node not in removed and node not in closed:
                here = touched.get(node)
                if here is None:
                    best = node
                    break
                left = here.left
                for column, amount in need:
                    if left[column] < amount:
                        break
                else:
                    if not company or self._keeps_company(node, variant, here):
                        best = node
                        break
            position += 1
        cursors[number] = position
        return best

    def _open_domains(self, variant: Variant) -> list[tuple[int, int]]:
        keys = variant.keys
        return [
            (keys.index(rule.group.key), self.states[rule.group.id].open_domains(rule.allowed, rule.own))
            for rule in variant.zone_rules
        ]

    def _near_hosts(self, variant: Variant) -> list[int] | None:
        """Return the nodes that pod affinity over host names allows; None if it is the first pod of its kind."""
        near: list[int] | None = None
        for rule in variant.host_affinity:
            state = self.states[rule.group.id]
            if not state.bootstraps(rule.allowed, rule.own):
                hosts = state.hosts(rule.allowed)
                near = hosts if near is None else [node for node in near if node in set(hosts)]
        return near

    def _first_of(self, near: list[int], variant: Variant, *, exempt: bool) -> int:
        masks = self._open_domains(variant)
        columns = [self.frame.domains(key).column for key in variant.keys]
        for node in near:
            if not variant.mask[node] or not self._takes(node, variant, exempt=exempt):
                continue
            places = tuple(int(column[node]) for column in columns)
            if -1 not in places and _all_open(masks, places):
                return node
        return -1

    def _takes(self, node: int, variant: Variant, *, exempt: bool) -> bool:
        """Return whether the node still takes the variant in this simulation."""
        if node in self.removed or (not exempt and node in self.closed):
            return False
        here = self.touched.get(node)
        has_room = here is None or all(here.left[column] >= amount for column, amount in variant.need)
        return has_room and (here is None or self._keeps_company(node, variant, here))

    def put_on(self, entry: Entry, node: int) -> bool:
        """Place a pod on this node, giving up as few preferences as necessary; False if it doesn't fit."""
        variant: Variant | None = self.frame.first(entry.cls)
        while variant is not None:
            if variant.mask[node] and self._takes(node, variant, exempt=entry.exempt):
                self._put_on_node(entry, variant, node)
                return True
            variant = variant.after
            if variant is not None:
                self._activate(variant)
        return False

    def _keeps_company(self, node: int, variant: Variant, here: Touched) -> bool:
        """Return whether ports, attach limits and host rules allow the pod beside those placed on the node."""
        if variant.ports and ports_clash(variant.ports, here.ports):
            return False
        if here.attached and not self.frame.attaches(node, variant.attached, here.attached):
            return False
        return all(self.states[rule.group.id].node_takes(node, rule.own) for rule in variant.host_rules)

    def _put_on_node(self, entry: Entry, variant: Variant, node: int) -> None:
        touched = self.touched.get(node)
        if touched is None or touched.shared:
            touched = self.touched[node] = touched.copy() if touched else Touched(self.frame.row(node).copy())
        left = touched.left
        for column, amount in variant.need:
            left[column] -= amount
        touched.entries.append(entry)
        touched.ports.extend(variant.ports)
        touched.attached.extend(variant.attached)
        for state in self._recorders_of(entry.cls):
            if state.group.will_count(node):
                state.record_node(node)

    # New nodes

    def _open_claim(self, entry: Entry, variant: Variant) -> bool:
        for template in self.frame.templates:
            may_come = template.types if entry.leaving else template.types & self.launchable
            types = self._within_limits(template.index, may_come)
            if not types:
                continue
            claim = Claim(self.opened + 1, template, types)
            fit = self.rules.fit(claim, variant, best_effort=self.best_effort)
            if fit is None:
                continue
            self.opened += 1
            claim.foreign = entry.leaving
            self.claims.append(claim)
            self._put_on_claim(entry, variant, claim, fit)
            self.charge(claim)
            return True
        return False

    def next_number(self) -> int:
        """Return a number for a claim that is opened elsewhere."""
        self.opened += 1
        return self.opened

    def _within_limits(self, template: int, types: TypeBits) -> TypeBits:
        """Return the types that the pool's limits still allow."""
        left = self.limits_left.get(template)
        if left is None:
            return types
        if left.get("nodes") == 0:
            return 0
        for name, amount in left.items():
            types &= self.frame.machines.within(name, amount)
        return types

    def charge(self, claim: Claim) -> None:
        """Count the largest possible machine against the pool's limits."""
        left = self.limits_left.get(claim.template.index)
        if left is not None:
            for name in left:
                left[name] -= self.frame.machines.largest(name, claim.types)

    def _put_on_claim(self, entry: Entry, variant: Variant, claim: Claim, fit: Fit) -> None:
        claim.pods.append(entry.pod)
        self._grown = (claim,)
        claim.variants.append(variant)
        claim.reqs = fit.reqs
        claim.types = fit.types
        claim.short_values = claim.short_values or fit.relaxed
        for column, amount in variant.need:
            claim.total[column] = claim.total.get(column, 0) + amount
        claim.ports.extend(variant.ports)
        if self.rules.reservations is not None:
            self.rules.reservations.hold(claim, fit.reserved)
            claim.reserved = fit.reserved
        self.count_on_claim(entry, claim)
        claim.own = claim.own or entry.carried or not (entry.pending or entry.leaving)
        if (self.count_all or claim.own) and not claim.counted:
            claim.counted = True
            self.own_claims += 1
            self.stopped = self.new_nodes_max is not None and self.own_claims > self.new_nodes_max

    def count_on_claim(self, entry: Entry, claim: Claim) -> None:
        """Count a pod on a new node in the topology."""
        for state in self._recorders_of(entry.cls):
            node_filter = state.group.filter
            if node_filter is None or node_filter.claims(claim.template.taints, claim.reqs.reqs):
                state.record_claim(claim.number, claim.reqs.get(state.group.key))


def _all_open(masks: Sequence[tuple[int, int]], places: tuple[int, ...]) -> bool:
    return all(mask >> places[key] & 1 for key, mask in masks)
