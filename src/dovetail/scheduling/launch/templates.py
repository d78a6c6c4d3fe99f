"""Pools as templates of new nodes: which may be used, in which order, with which types, labels, taints and daemons.

Static pools and pools that are not Ready, being deleted or unreadable are excluded. The order is weight, then name,
both descending, as in Karpenter. A pool whose own requirements leave no type is excluded too; `decide.warnings` says
so. `PoolLimits` has what is left of the pools' limits.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from dovetail.api.manifests.pool_rules import launch_problems
from dovetail.model import names
from dovetail.model.labels.clouds import asks_for_label, is_clouds_own
from dovetail.model.labels.requirements import Requirement, Requirements
from dovetail.model.objects import NodePool, Taint, condition
from dovetail.model.rules import Rules
from dovetail.scheduling.launch.daemons import DaemonTerms
from dovetail.scheduling.launch.machines import Machines, Mask, ReqSet, Resources, Steps, TypeBits, bits_of, places_of
from dovetail.scheduling.nodes import StateNode
from dovetail.scheduling.pods.pod import HostPort
from dovetail.scheduling.pods.requests import amounts

HOST_PLACEHOLDER = "hostname-placeholder"
_POOLS_MAX = 2000
_ANY_TYPE = Requirements(())


class DaemonGroup(msgspec.Struct, frozen=True, eq=False):
    """Types on which the same daemons would run, and their requests."""

    types: TypeBits
    requests: dict[str, int]
    ports: tuple[HostPort, ...]


class Template(msgspec.Struct, frozen=True, eq=False):
    """What a new node of a pool starts from. `room`: per resource, what each type has after its daemons."""

    index: int
    pool: NodePool
    name: str
    taints: tuple[Taint, ...]
    startup_taints: tuple[Taint, ...]
    reqs: ReqSet
    types: TypeBits
    groups: tuple[DaemonGroup, ...]
    room: tuple[Steps, ...]
    limits: dict[str, int]


def order_by_weight(pools: Iterable[NodePool]) -> list[NodePool]:
    """Return pools by weight, heaviest first; of equal weight, the later name first."""
    by_name = sorted(pools, key=lambda pool: pool.metadata.name, reverse=True)
    return sorted(by_name, key=lambda pool: -(pool.spec.weight or 0))


def usable_pools(pools: Iterable[NodePool]) -> list[NodePool]:
    """Return the pools that new nodes may come from, in the order in which they are tried."""
    return order_by_weight(
        pool
        for pool in pools
        if pool.spec.replicas is None
        and pool.metadata.deletion_timestamp is None
        and _is_ready(pool)
        and unreadable(pool) is None
    )


def unreadable(pool: NodePool) -> str | None:
    """Return what is invalid in a pool: it then launches nothing, and the other pools go on."""
    return next(iter(launch_problems(pool)), None)


def _is_ready(pool: NodePool) -> bool:
    """Return whether the pool is ready to Karpenter; a manifest that no controller has seen yet counts as ready."""
    ready = condition(pool.status.conditions, "Ready")
    return ready is None or ready.status == "True"


def template_labels(pool: NodePool) -> dict[str, str]:
    """Return the labels that every node of the pool gets."""
    reference = pool.spec.template.spec.node_class_ref
    return {
        **pool.spec.template.metadata.labels,
        names.NODEPOOL: pool.metadata.name,
        f"{reference.group}/{reference.kind.lower()}": reference.name,
    }


def pool_requirements(pool: NodePool) -> Requirements:
    """Return the pool's requirements with its labels and those of every started node."""
    spec = pool.spec.template.spec
    return (
        Requirements.from_spec(spec.requirements)
        .union(Requirements.from_labels(template_labels(pool)))
        .add(
            Requirement.of(names.REGISTERED_LABEL, "In", ("true",)),
            Requirement.of(names.INITIALIZED_LABEL, "In", ("true",)),
        )
    )


class Unmet(msgspec.Struct, frozen=True):
    """The requirements of a pool that can't be met. `no_type`: its requirements leave none of the types that it sees.

    `labels`: labels of the cloud that it requires although no type has them and its template doesn't set them.
    """

    labels: tuple[str, ...] = ()
    no_type: bool = False


class UnmetCache:
    """Caches the unmet requirements of pools: these hardly ever change, and every round asks."""

    __slots__ = ("_found", "_machines")

    def __init__(self) -> None:
        self._machines: Machines | None = None
        self._found: dict[tuple[object, ...], Unmet] = {}

    def of(self, pool: NodePool, machines: Machines) -> Unmet:
        """Return the requirements of a pool that these types don't meet."""
        if machines is not self._machines or len(self._found) > _POOLS_MAX:
            self._machines, self._found = machines, {}
        spec = pool.spec.template.spec
        labels = tuple(sorted(template_labels(pool).items()))
        key = (labels, spec.requirements)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = _unmet(pool, machines)
        return found


def _unmet(pool: NodePool, machines: Machines) -> Unmet:
    given, name = template_labels(pool), pool.metadata.name
    entries = pool.spec.template.spec.requirements
    asked = dict.fromkeys(entry.key for entry in entries if asks_for_label(entry) and is_clouds_own(entry.key))
    types = machines.types_of(pool_requirements(pool))
    return Unmet(
        labels=tuple(key for key in asked if key not in given and not machines.gives(key, name)),
        no_type=not types & machines.sound & machines.of_pool(name),
    )


def short_values(machines: Machines, reqs: ReqSet, types: TypeBits) -> dict[str, int]:
    """Return the keys whose minValues the types don't reach, with the number of values that they have."""
    if not reqs.has_min_values:
        return {}
    kinds = [machines.kinds[place] for place in places_of(types)]
    short: dict[str, int] = {}
    for entry in reqs.reqs:
        if entry.min_values is not None:
            seen = len({value for kind in kinds for value in reqs.values_of(kind, entry.key)})
            if seen < entry.min_values:
                short[entry.key] = seen
    return short


def build_templates(
    pools: Sequence[NodePool],
    machines: Machines,
    daemons: DaemonTerms,
    resources: Resources,
    *,
    rules: Rules,
    best_effort: bool,
) -> tuple[Template, ...]:
    """Return the templates of usable pools, in the order in which they are tried."""
    found: list[Template] = []
    for pool in pools:
        spec = pool.spec.template.spec
        base = pool_requirements(pool)
        reqs = machines.intern(base)
        types = reqs.types & machines.sound & machines.of_pool(pool.metadata.name)
        if not types or (not best_effort and short_values(machines, reqs, types)):
            continue
        groups = _daemon_groups(base, spec.taints, types, machines, daemons, by_type=rules.daemons_by_type)
        room = machines.allocatable.copy()
        for group in groups:
            room[places_of(group.types)] -= resources.row(group.requests)
        # A type whose daemons alone need more than it has can't be launched.
        launchable = types & bits_of(np.all(room >= 0, axis=1))
        found.append(
            Template(
                index=len(found),
                pool=pool,
                name=pool.metadata.name,
                taints=spec.taints,
                startup_taints=spec.startup_taints,
                reqs=machines.intern(base.add(Requirement.of(names.HOSTNAME, "In", (HOST_PLACEHOLDER,)))),
                types=types,
                groups=groups,
                room=tuple(Steps(room[:, column].tolist(), launchable) for column in range(room.shape[1])),
                limits=_limits(pool, rules),
            )
        )
    return tuple(found)


def _limits(pool: NodePool, rules: Rules) -> dict[str, int]:
    found = amounts(pool.spec.limits)
    if not rules.node_limits:
        found.pop("nodes", None)
    return found


def _daemon_groups(
    base: Requirements,
    taints: tuple[Taint, ...],
    types: TypeBits,
    machines: Machines,
    daemons: DaemonTerms,
    *,
    by_type: bool,
) -> tuple[DaemonGroup, ...]:
    by_set: dict[tuple[int, ...], list[int]] = {}
    for place in places_of(types):
        kind = machines.type_reqs[place] if by_type else _ANY_TYPE
        running = tuple(
            number
            for number in range(len(daemons.daemons))
            if daemons.on_template(number, taints, base, kind, machines.known)
        )
        by_set.setdefault(running, []).append(place)
    groups = []
    for running, places in by_set.items():
        bits = sum(1 << place for place in places)
        total: dict[str, int] = {}
        for number in running:
            for name, amount in daemons.daemons[number].requests.items():
                total[name] = total.get(name, 0) + amount
        ports = tuple(port for number in running for port in daemons.daemons[number].ports)
        groups.append(DaemonGroup(bits, total, ports))
    return tuple(groups)


class PoolLimits:
    """The limits of the templates' pools against the nodes that stay."""

    def __init__(self, templates: Sequence[Template], states: Sequence[StateNode], staying: Mask) -> None:
        self._states, self._staying = states, staying
        self._left = {template.index: dict(template.limits) for template in templates if template.limits}
        self._place = {template.name: template.index for template in templates if template.limits}
        for state, stays in zip(states, staying.tolist(), strict=True) if self._left else ():
            at = self._place.get(state.labels.get(names.NODEPOOL, "")) if stays else None
            if at is not None:
                _take(self._left[at], state.capacity, -1)

    def left_without(self, removed: Sequence[int]) -> dict[int, dict[str, int]]:
        """Return what each template's pool has left once these nodes are gone; the caller may modify it."""
        left = {at: dict(amounts) for at, amounts in self._left.items()}
        for index in removed if left else ():
            state = self._states[index]
            at = self._place.get(state.labels.get(names.NODEPOOL, ""))
            if at is not None and self._staying[index]:
                _take(left[at], state.capacity, 1)
        return left


def _take(left: dict[str, int], capacity: Mapping[str, int], sign: int) -> None:
    for name in left:
        left[name] += sign * (1 if name == "nodes" else capacity.get(name, 0))
