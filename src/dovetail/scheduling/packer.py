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
from dovetail.scheduling.launch.claims import Claim, ClaimRules, Fit, ReservedError
from dovetail.scheduling.launch.fill_order import FillOrder
from dovetail.scheduling.launch.machines import TypeBits
from dovetail.scheduling.pods.classes import PodClass
from dovetail.scheduling.pods.pod import ports_clash
from dovetail.scheduling.pods.variants import NodeList, Variant
from dovetail.scheduling.topology.states import Counting

_NONE: Final[frozenset[int]] = frozenset()


class Packer:
    """Places the pods of one simulation, in the order that the module describes."""

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
        self.closed = frozenset(options.closed)
        self.limits_left = limits_left
        self.count_all = frame.settings.rules.others_pods_count
        self.new_nodes_max = options.new_nodes_max
        self.launchable = options.launchable
        self._preferences_open = options.preferences_open
        self._stops_at = frame.columns.count if options.stops_at is None else options.stops_at
        self.best_effort = frame.settings.min_values_policy is MinValuesPolicy.BEST_EFFORT
        self._counting = Counting(frame, self.removed, moving)
        self.states = self._counting.states
        self.rules = ClaimRules(frame, self.states, strict_reserved=options.strict_reserved)
        self.touched: dict[int, Touched] = {}
        self._filling = FillOrder()
        self.opened = 0
        self.own_claims = 0
        self.stopped = False
        self.unplaced: list[Entry] = []
        self._cursors: dict[tuple[int, bool], list[int]] = {}
        self._hopeless: set[tuple[tuple[int, bool], bool]] = set()
        self.lanes: dict[tuple[int, bool], Lane | None] = {}
        self._shared_lanes: dict[tuple[int, bool], Lane | None] = {}

    @property
    def claims(self) -> list[Claim]:
        """Return the new nodes, those with the fewest pods first."""
        return self._filling.in_order()

    # The queue

    def prepare(self, entries: Iterable[Entry], *, to_run: bool = True) -> None:
        """Start counting for the rules of these pods, before any is placed; `to_run`: by `run`, not by `put_on`."""
        first, lanes = self.frame.first, self.lanes
        for entry in entries:
            if entry.kind not in lanes:
                variant = first(entry.cls)
                if variant.rules:
                    self._counting.activate(variant)
                lanes[entry.kind] = self._lane(variant, exempt=entry.exempt) if to_run and variant.simple else None

    def run(self, entries: Sequence[Entry]) -> None:
        """Place the pods, in this order; they have been prepared."""
        lanes = self.lanes
        queue: deque[Entry] = deque()
        failed_at: dict[int, int] = {}
        at, count = 0, len(entries)
        while at < count:
            entry = entries[at]
            lane = lanes[entry.kind]
            placed = self._put_on_first_node(entries, at, lane) if lane is not None and lane.cursors[0] >= 0 else 0
            if placed:
                at += placed
                if self.stopped:
                    break
                continue
            at += 1
            if not self._schedule(entry):
                queue.append(entry)
                failed_at[id(entry)] = count - at + len(queue)
            elif self.stopped:
                queue.extendleft(reversed(entries[at:]))
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
        """Return the nodes to try for pods that only need room; None if no node takes one."""
        key = (variant.like, exempt)
        if key not in self._shared_lanes:
            buckets = variant.buckets  # one, without topology rules
            closed = _NONE if exempt else self.closed
            self._shared_lanes[key] = (
                Lane(buckets[0][1], variant.need, self._cursors.setdefault(key, [0]), closed) if buckets else None
            )
        return self._shared_lanes[key]

    def _put_on_first_node(self, entries: Sequence[Entry], at: int, lane: Lane) -> int:
        """Place a pod that only needs room, as `_add` would; return how many pods were placed: 0 if no node takes it.

        The pods after it that have the same lane go to the same node, as many as it takes.
        """
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
            return 0
        cursors[0] = position
        if here.shared:
            here = touched[node] = here.copy()
            left = here.left
        end = at + 1
        if self.states:
            for state in self._counting.recorders_of(entries[at].cls):
                if state.group.will_count(node):
                    state.record_node(node)
        else:
            end = self._end_of_lane(entries, end, lane, left)
        for column, amount in need:
            left[column] -= amount * (end - at)
        here.entries.extend(entries[at:end])
        if node >= self._stops_at:
            self.stopped = self.stopped or any(map(_is_candidates, entries[at:end]))
        return end - at

    def _end_of_lane(self, entries: Sequence[Entry], end: int, lane: Lane, left: Sequence[int]) -> int:
        """Return the end of the run of pods of the same lane, as many as there is room for."""
        lanes = self.lanes
        if end < len(entries) and lanes[entries[end].kind] is lane:
            last = min(len(entries), end - 1 + min(left[column] // amount for column, amount in lane.need))
            while end < last and lanes[entries[end].kind] is lane:
                end += 1
        return end

    def _schedule(self, entry: Entry) -> bool:
        key = (entry.kind, entry.leaving)
        if key in self._hopeless:
            return False
        variant: Variant | None = self.frame.first(entry.cls)
        if variant is not None and variant.lost:
            return False
        if not self._preferences_open and self._yields(entry, variant):
            return True
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
                self._counting.activate(variant)
        if steady and self.rules.reservations is None:
            self._hopeless.add(key)
        return False

    def _yields(self, entry: Entry, variant: Variant | None) -> bool:
        """Place a pod on an existing node, giving up preferences before a new node is opened; False if none fits."""
        while variant is not None:
            node = self._find_node(variant, exempt=entry.exempt)
            if node >= 0:
                self._put_on_node(entry, variant, node)
                return True
            variant = variant.after
            if variant is not None:
                self._counting.activate(variant)
        return False

    def _add(self, entry: Entry, variant: Variant) -> bool:
        node = self._find_node(variant, exempt=entry.exempt)
        if node >= 0:
            self._put_on_node(entry, variant, node)
            return True
        steady = variant.steady and self.rules.reservations is None
        found = refused = False
        for claim in self._filling.open_to(variant.like):
            if not self.count_all and not may_share(entry, claim):
                continue
            fit = self._try(claim, variant)
            if fit is not None:
                self._put_on_claim(entry, variant, claim, fit)
                found = True
                break
            if steady:  # a refusal by a new node is final: it only gets fuller
                claim.refused.add(variant.like)
                refused = True
        if refused:
            self._filling.drop_refusing(variant.like)
        return found or self._open_claim(entry, variant)

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
        kind = (variant.like, exempt)
        cursors = self._cursors.get(kind)
        if cursors is None:
            cursors = self._cursors[kind] = [0] * len(buckets)
        if cursors[0] < 0:
            return -1
        lane = self._shared_lanes.get(kind)
        if lane is not None:  # its cursor counts in its own list, which may be shorter
            buckets = [((), lane.nodes)]
        masks = self._open_domains(variant) if variant.zone_rules else ()
        best = -1
        for number, (places, nodes) in enumerate(buckets):
            for key, mask in masks:  # `_all_open`, written out
                if not mask >> places[key] & 1:
                    break
            else:
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
        if here is None:
            return True
        for column, amount in variant.need:
            if here.left[column] < amount:
                return False
        return self._keeps_company(node, variant, here)

    def put_on(self, entry: Entry, node: int) -> bool:
        """Place a pod on this node, giving up as few preferences as necessary; False if it doesn't fit."""
        variant: Variant | None = self.frame.first(entry.cls)
        while variant is not None:
            if variant.mask[node] and self._takes(node, variant, exempt=entry.exempt):
                self._put_on_node(entry, variant, node)
                return True
            variant = variant.after
            if variant is not None:
                self._counting.activate(variant)
        return False

    def _keeps_company(self, node: int, variant: Variant, here: Touched) -> bool:
        """Return whether ports, attach limits and host rules allow the pod beside those placed on the node."""
        if variant.ports and ports_clash(variant.ports, here.ports):
            return False
        if here.attached and not self.frame.attaches(node, variant.attached, here.attached):
            return False
        for rule in variant.host_rules:
            state = self.states[rule.group.id]
            if not state.node_takes(node, rule.own):
                return False
        return True

    def _put_on_node(self, entry: Entry, variant: Variant, node: int) -> None:
        touched = self.touched.get(node)
        if touched is None or touched.shared:
            touched = self.touched[node] = touched.copy() if touched else Touched(self.frame.row(node).copy())
        left = touched.left
        for column, amount in variant.need:
            left[column] -= amount
        touched.entries.append(entry)
        if node >= self._stops_at and _is_candidates(entry):
            self.stopped = True
        if variant.ports or variant.attached:
            touched.ports.extend(variant.ports)
            touched.attached.extend(variant.attached)
        for state in self._counting.recorders_of(entry.cls):
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
            self._filling.open(claim)
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
        self._filling.grow(claim)
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
        for state in self._counting.recorders_of(entry.cls):
            node_filter = state.group.filter
            if node_filter is None or node_filter.claims(claim.template.taints, claim.reqs.reqs):
                state.record_claim(claim.number, claim.reqs.get(state.group.key))


def _is_candidates(entry: Entry) -> bool:
    return not (entry.pending or entry.leaving)


def _all_open(masks: Sequence[tuple[int, int]], places: tuple[int, ...]) -> bool:
    return all(mask >> places[key] & 1 for key, mask in masks)
