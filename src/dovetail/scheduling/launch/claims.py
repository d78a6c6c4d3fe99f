"""New nodes while they are being filled: requirements narrow, types drop out, until nothing more fits.

A `Claim` starts from a pool's template; each pod that joins narrows its requirements (its own, its volumes', the
domains that topology leaves) and increases the room that its types must have. The result of each step is cached across
simulations. Knows nothing of existing nodes; `scheduling.packer` decides in which order claims are tried.
"""

from collections.abc import Iterable, Mapping, Sequence
from sys import maxsize
from typing import Final

from dovetail.model import names
from dovetail.model.catalogue import Offering
from dovetail.model.labels.requirements import Requirement, Requirements
from dovetail.model.objects import Pod
from dovetail.scheduling.frame import Frame
from dovetail.scheduling.launch.machines import RESERVATION, ReqSet, TypeBits, places_of
from dovetail.scheduling.launch.templates import Template, short_values
from dovetail.scheduling.pods.pod import HostPort, ports_clash
from dovetail.scheduling.pods.relax import next_preference
from dovetail.scheduling.pods.variants import Variant
from dovetail.scheduling.topology.states import GroupState

LAST: Final = (maxsize, 0)


class ReservedError(Exception):
    """A reserved offering exists but isn't available in this pass: the pod waits, nothing is relaxed for it."""


class Claim:
    """A new node while it is being filled."""

    __slots__ = (
        "counted",
        "foreign",
        "number",
        "own",
        "pods",
        "ports",
        "position",
        "refused",
        "reqs",
        "reserved",
        "short_values",
        "template",
        "total",
        "types",
        "variants",
    )

    def __init__(self, number: int, template: Template, types: TypeBits) -> None:
        self.number = number
        self.position = LAST
        """Its place in the order in which new nodes are filled."""
        self.template = template
        self.reqs: ReqSet = template.reqs
        self.types = types
        self.total: dict[int, int] = {}
        self.pods: list[Pod] = []
        self.variants: list[Variant] = []
        self.ports: list[HostPort] = []
        self.refused: set[int] = set()
        """Kinds of variants (`Variant.like`) that it can't take any more."""
        self.reserved: list[Offering] = []
        self.short_values = False
        self.own = False
        """Return whether a pod of the candidates is on it."""
        self.counted = False
        """Return whether it counts against the new nodes that are allowed."""
        self.foreign = False
        """Return whether it was opened for pods of nodes that leave in any case."""


class Fit:
    """What a claim becomes when a pod joins."""

    __slots__ = ("relaxed", "reqs", "reserved", "types")

    def __init__(self, reqs: ReqSet, types: TypeBits, reserved: list[Offering], *, relaxed: bool = False) -> None:
        self.reqs = reqs
        self.types = types
        self.reserved = reserved
        self.relaxed = relaxed


class Reservations:
    """Slots of reserved offerings that are left in one simulation."""

    __slots__ = ("_credited", "_held", "_left", "strict")

    def __init__(self, frame: Frame, *, strict: bool) -> None:
        self.strict = strict
        self._left: dict[str, int] = {}
        self._held: dict[int, set[str]] = {}
        self._credited = ""
        for offering in frame.machines.offerings:
            if offering.capacity_type == names.RESERVED:
                key = offering.reservation_id
                self._left[key] = min(self._left.get(key, offering.reservation_capacity), offering.reservation_capacity)

    def credit(self, reservation: str) -> None:
        """Count one more free slot of a reservation."""
        self._credited = reservation
        self._left[reservation] = self._left.get(reservation, 0) + 1

    def offered(self, claim: Claim, kinds: Iterable[Sequence[Offering]], reqs: ReqSet) -> list[Offering] | None:
        """Return the reserved offerings that the claim would hold; None if only exhausted ones match."""
        with_room = full = other = False
        found: list[Offering] = []
        for offerings in kinds:
            for offering in offerings:
                if not offering.available or not reqs.goes_with(offering):
                    continue
                if offering.capacity_type != names.RESERVED:
                    other = True
                elif offering.reservation_capacity == 0 and offering.reservation_id != self._credited:
                    full = True
                else:
                    with_room = True
                    held = offering.reservation_id in self._held.get(claim.number, ())
                    if held or self._left[offering.reservation_id] > 0:
                        found.append(offering)
        if self.strict and with_room and not found:
            raise ReservedError
        if full and not with_room and not other:
            if self.strict:
                raise ReservedError
            return None
        if self.strict and claim.reserved and not found:
            raise ReservedError
        return found

    def hold(self, claim: Claim, wanted: Sequence[Offering]) -> None:
        """Release the slots that the claim held and take the new ones."""
        held = self._held.setdefault(claim.number, set())
        keys = {offering.reservation_id for offering in wanted}
        for key in sorted(keys - held):
            self._left[key] -= 1
        for key in sorted(held - keys):
            self._left[key] += 1
        self._held[claim.number] = keys


class ClaimRules:
    """The rules by which pods join claims, for one simulation."""

    def __init__(self, frame: Frame, states: Mapping[int, GroupState], *, strict_reserved: bool) -> None:
        self.frame = frame
        self.machines = frame.machines
        self.states = states
        self.reservations = Reservations(frame, strict=strict_reserved) if frame.machines.has_reserved else None

    def credit(self, reservation: str) -> None:
        """Count one more free slot of a reservation: that of a node that is removed first."""
        if self.reservations is not None:
            self.reservations.credit(reservation)

    def fit(self, claim: Claim, variant: Variant, *, best_effort: bool = False) -> Fit | None:
        """Return what the claim becomes when a pod of the variant joins; None if it can't."""
        if not variant.templates[claim.template.index]:
            return None
        base = self.machines.merged(claim.reqs, variant.reqs)
        if base is None:
            return None
        types = claim.types
        room = claim.template.room
        total = claim.total
        for column, amount in variant.need:
            types &= room[column].at_least(total.get(column, 0) + amount)
        if variant.ports:
            types = _with_ports(claim, variant, types)
        if not types:
            return None
        if not variant.alternatives:
            return self._joined(claim, variant, base, types, best_effort=best_effort)
        return self._with_volumes(claim, variant, base, types, best_effort=best_effort)

    def _with_volumes(
        self, claim: Claim, variant: Variant, base: ReqSet, types: TypeBits, *, best_effort: bool
    ) -> Fit | None:
        """Try each way to satisfy the pod's volumes."""
        waits: ReservedError | None = None
        for alternative in variant.alternatives:
            waits = None
            narrowed = self.machines.merged(base, alternative)
            if narrowed is not None:
                try:
                    found = self._joined(claim, variant, narrowed, types, best_effort=best_effort)
                except ReservedError as error:
                    waits = error
                    continue
                if found is not None:
                    return found
        if waits is not None:
            raise waits
        return None

    def _joined(
        self, claim: Claim, variant: Variant, base: ReqSet, types: TypeBits, *, best_effort: bool
    ) -> Fit | None:
        reqs = self._narrowed_by_topology(claim, variant, base) if variant.rules else base
        if reqs is None:
            return None
        types &= reqs.types
        if not types:
            return None
        relaxed = False
        if reqs.has_min_values:
            short = self.short_values(reqs, types)
            if short:
                if not best_effort:
                    return None
                reqs = self.machines.replaced(reqs, [_lowered(reqs, key, seen) for key, seen in sorted(short.items())])
                relaxed = True
        reserved: list[Offering] = []
        if self.reservations is not None:
            kinds = (self.machines.kinds[place].offerings for place in places_of(types))
            offered = self.reservations.offered(claim, kinds, reqs)
            if offered is None:
                return None
            reserved = offered
        return Fit(reqs, types, reserved, relaxed=relaxed)

    def short_values(self, reqs: ReqSet, types: TypeBits) -> dict[str, int]:
        """Return the keys whose minValues these types don't reach; cached across simulations."""
        memo = self.frame.short_values
        key = (reqs.id, types)
        found = memo.get(key)
        if found is None:
            found = memo[key] = short_values(self.machines, reqs, types)
        return found

    def _narrowed_by_topology(self, claim: Claim, variant: Variant, base: ReqSet) -> ReqSet | None:
        entries: list[Requirement] = []
        for rule in variant.rules:
            group = rule.group
            state = self.states[group.id]
            entry = state.claim_domains(claim.number, rule.allowed, base.get(group.key), rule.own)
            if entry is not None:
                if not entry.values:
                    return None
                entries.append(entry)
        if not entries:
            return base
        memo = self.frame.narrowed
        key = (base.id, tuple(entries))
        if key not in memo:
            memo[key] = self._narrow(base, entries)
        return memo[key]

    def _narrow(self, base: ReqSet, entries: Sequence[Requirement]) -> ReqSet | None:
        wanted = Requirements(entries)
        tight = base.reqs.union(wanted)
        # Each rule chose from the node's domains independently; together they may leave none.
        if not base.reqs.is_compatible(tight, self.machines.known):
            return None
        for entry in entries:
            chosen = tight.get(entry.key)
            if chosen is None or not chosen.values:
                return None
        return self.machines.intern(tight)


def _with_ports(claim: Claim, variant: Variant, types: TypeBits) -> TypeBits:
    """Return the types on which neither the claim's pods nor daemons use a requested host port."""
    if ports_clash(variant.ports, claim.ports):
        return 0
    for group in claim.template.groups:
        if ports_clash(variant.ports, group.ports):
            types &= ~group.types
    return types


def _lowered(reqs: ReqSet, key: str, seen: int) -> Requirement:
    entry = reqs.get(key)
    assert entry is not None
    return Requirement(
        key=key, complement=entry.complement, values=entry.values, gte=entry.gte, lte=entry.lte, min_values=seen
    )


def final_requirements(claim: Claim, *, unnamed: bool) -> ReqSet:
    """Return the requirements of a finished claim; reserved offerings that it holds are named."""
    machines = claim.reqs.table
    if not claim.reserved:
        return claim.reqs
    group = claim.template.pool.spec.template.spec.node_class_ref.group
    entries = [Requirement.of(names.CAPACITY_TYPE, "In", (names.RESERVED,))]
    keys = tuple(offering.reservation_id for offering in claim.reserved)
    # Only a provider can name the label of its reservations; upstream writes an empty one if no provider does.
    if group == RESERVATION.partition("/")[0] or unnamed:
        key = RESERVATION if group == RESERVATION.partition("/")[0] else ""
        entries.append(Requirement(key=key, values=frozenset(keys)))
    return machines.replaced(claim.reqs, entries)


def final_requests(claim: Claim, frame: Frame) -> dict[str, int]:
    """Return the resources the claim needs: its pods, and the least that its daemons take on any remaining type."""
    total = {frame.resources.names[column]: amount for column, amount in claim.total.items()}
    least: dict[str, int] = {}
    for group in claim.template.groups:
        if not group.types & claim.types:
            continue
        if not least:
            least = dict(group.requests)
        else:
            least = {name: min(least[name], group.requests[name]) for name in least if name in group.requests}
    for name, amount in least.items():
        total[name] = total.get(name, 0) + amount
    return total


def kept_preferences(claim: Claim) -> tuple[str, ...]:
    """Return the preferences that pods still had when they were placed on a new node.

    Without these preferences an existing node might have been enough.
    """
    found = []
    for pod, variant in zip(claim.pods, claim.variants, strict=True):
        what = next_preference(variant.spec)
        if what is not None:
            found.append(f"{pod.metadata.key} holds on to {what}")
    return tuple(found)


def sorted_types(types: TypeBits, reqs: ReqSet) -> list[int]:
    """Return the possible types, by cheapest launch price under the requirements, then name."""
    return [place for place in reqs.order if types >> place & 1]
