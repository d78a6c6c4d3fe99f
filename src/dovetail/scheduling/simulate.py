"""Simulates the removal of nodes: where their pods would go, and what would have to be launched.

See docs/rules.md#methods, Simulation. `simulate(snapshot, candidates, ...)` places the candidates' pods, the pending
pods and the pods of nodes that are already leaving. It never copies the snapshot; the same question gives the same
answer. `decide` judges whether the answer is good enough and worth its price. `place(snapshot)` removes nothing and
places the pending pods: the question of `dovetail place`.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from dovetail.model.objects import Pod
from dovetail.model.settings import PreferencePolicy
from dovetail.scheduling.buffers import buffer_of
from dovetail.scheduling.entries import DEFAULT_OPTIONS, Entry, SimulationOptions, Touched
from dovetail.scheduling.explain import explain, explain_uninitialized
from dovetail.scheduling.launch.claims import Claim, final_requests, final_requirements, kept_preferences, sorted_types
from dovetail.scheduling.nodes import StateNode
from dovetail.scheduling.packer import Packer
from dovetail.scheduling.pods.movers import Leaving
from dovetail.scheduling.result import NewNode, NodePlacement, PlacementResult, SimulationResult, Unplaced
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.under_way import NOTHING_UNDER_WAY, Settled, UnderWay, settle

_by_key = attrgetter("key")
_FEW = 4
"""Placing up to this many pods of leaving nodes is cheaper than caching their places."""
TYPES_MAX = 600
"""How many instance types a launch may name; the cheapest stay (facts: TruncateInstanceTypes)."""


def simulate(
    snapshot: Snapshot,
    candidates: Sequence[int],
    options: SimulationOptions = DEFAULT_OPTIONS,
    under_way: UnderWay = NOTHING_UNDER_WAY,
) -> SimulationResult:
    """Place what must move when the candidates (indexes into `snapshot.states`) go.

    `under_way`: what commands in progress have planned for pods of leaving nodes; these are placed first, so that they
    keep their places.
    """
    if candidates and snapshot.virtual:
        carried_by_nodes(snapshot)
    engine, entries, leaving = _prepare(snapshot, candidates, options)
    if options.credited:
        engine.rules.credit(options.credited)
    count = len(entries) + len(leaving)
    if snapshot.settings.rules.others_pods_count:
        engine.prepare((*leaving, *entries))
        engine.run(entries if not candidates and not leaving else sorted((*entries, *leaving), key=_by_key))
        return _result(snapshot, tuple(candidates), engine, count)
    unsettled = _settle(snapshot, engine, entries, leaving, under_way)
    if not candidates:
        engine.run(sorted((*entries, *unsettled), key=_by_key) if unsettled else entries)
    else:
        engine.run((*sorted(unsettled, key=_by_key), *sorted(entries, key=_by_key)))
    return _result(snapshot, tuple(candidates), engine, count)


def _settle(
    snapshot: Snapshot, engine: Packer, entries: Sequence[Entry], leaving: Sequence[Entry], under_way: UnderWay
) -> Sequence[Entry]:
    """Put pods of leaving nodes where they were planned, with all pods prepared; return those without such a place."""
    whole = len(leaving) > _FEW and len(leaving) == len(snapshot.leaving_entries)
    if not whole or snapshot.settings.ties:
        engine.prepare((*leaving, *entries))
        return settle(engine, leaving, under_way, snapshot.index)
    engine.prepare(entries)
    settled = planned_places(snapshot, under_way)
    if settled is None or not settled.serves(engine):
        engine.prepare(leaving)
        return settle(engine, leaving, under_way, snapshot.index)
    settled.put_into(engine)
    engine.prepare(settled.unsettled)
    return settled.unsettled


def planned_places(snapshot: Snapshot, under_way: UnderWay) -> Settled | None:
    """Return the planned places of all pods of leaving nodes, cached per snapshot; None if they depend on more."""
    if snapshot.settled is None or snapshot.settled[0] is not under_way:
        bare = SimulationOptions(include_pending=False, include_leaving=False)
        scratch, _, _ = _prepare(snapshot, (), bare)
        kinds = {entry.kind: entry for entry in snapshot.leaving_entries}
        scratch.prepare(kinds.values(), to_run=False)
        leaving: dict[str, Entry] = {}
        for _, movers in snapshot.leaving_movers:
            leaving.update(movers.waiting_by_name)
        found = None if scratch.states else Settled(scratch, leaving, under_way, snapshot.index)
        snapshot.settled = (under_way, found)
    return snapshot.settled[1]


def buffers_by_name(snapshot: Snapshot) -> dict[str, list[int | None]]:
    """Return the CapacityBuffers (`namespace/name`) with the node that holds each virtual pod now; None: no node."""
    carried_by_nodes(snapshot)
    found: dict[str, list[int | None]] = {}
    for entry in snapshot.virtual:
        found.setdefault(buffer_of(entry.pod), []).append(snapshot.carried_at.get(id(entry.pod)))
    return dict(sorted(found.items()))


def carried_by_nodes(snapshot: Snapshot) -> Mapping[int, int]:
    """Return how many virtual pods of buffers each node has room for now; computed once per snapshot.

    A provisioning run finds the same. A virtual pod that fits now but would need a new node counts against a command;
    one that needs a new node anyway does not.
    """
    if snapshot.carried is None:
        virtual = {id(entry.pod): entry for entry in snapshot.virtual}
        snapshot.carried = {}
        for place in simulate(snapshot, ()).placements if virtual else ():
            own = [virtual[id(pod)] for pod in place.pods if id(pod) in virtual]
            for entry in own:
                entry.carried = True
                snapshot.carried_at[id(entry.pod)] = place.index
            if own:
                snapshot.carried[place.index] = len(own)
    return snapshot.carried


def _prepare(
    snapshot: Snapshot, candidates: Sequence[int], options: SimulationOptions
) -> tuple[Packer, list[Entry], Sequence[Entry]]:
    entries: list[Entry] = []
    others: list[Entry] = []
    moving: Leaving = []
    chosen = set(candidates)
    if options.include_pending:
        entries.extend(snapshot.queued)
    for index in candidates:
        movers = snapshot.movers(index)
        entries.extend(movers.queue)
        moving.extend(movers.leaving(index))
    if options.include_leaving and chosen.isdisjoint(snapshot.leaving_nodes):
        others = snapshot.leaving_entries
    elif options.include_leaving:
        for index, movers in snapshot.leaving_movers:
            if index not in chosen:
                others.extend(movers.waiting)
    engine = Packer(snapshot.frame, candidates, moving, snapshot.limits_left(candidates), options)
    return engine, entries, others


def _result(snapshot: Snapshot, candidates: tuple[int, ...], engine: Packer, pods_simulated: int) -> SimulationResult:
    # By docs/rules.md#methods only the candidates' pods count; Karpenter also stops at those of nodes that leave
    # anyway.
    lenient = not snapshot.settings.rules.others_pods_count
    unplaced = [
        Unplaced(pod=e.pod, forgiven=e.pending or (lenient and e.leaving), explain=explain(snapshot, engine, e))
        for e in (() if engine.stopped else engine.unplaced)
    ]
    new_nodes: list[NewNode] = []
    for claim in engine.claims:
        node = new_node(snapshot, claim)
        if node is None:
            forgiven = snapshot.pending_ids | (snapshot.leaving_ids if lenient else frozenset())
            unplaced.extend(_too_many_types(claim, pod, forgiven=id(pod) in forgiven) for pod in claim.pods)
        else:
            new_nodes.append(node)
    states, touched = snapshot.states, engine.touched
    return SimulationResult(
        candidates=candidates,
        list_placements=lambda: _placements(states, touched),
        new_nodes=tuple(new_nodes),
        unplaced=tuple(unplaced) if not engine.stopped else (),
        list_uninitialized=lambda: tuple(_uninitialized(snapshot, touched)),
        stopped_early=engine.stopped,
        pods_simulated=pods_simulated,
    )


def _placements(states: Sequence[StateNode], touched: Mapping[int, Touched]) -> tuple[NodePlacement, ...]:
    return tuple(
        NodePlacement(
            index=index,
            node=states[index].name,
            pods=tuple([entry.pod for entry in touched[index].entries]),
            initialized=states[index].initialized,
        )
        for index in sorted(touched)
    )


def _uninitialized(snapshot: Snapshot, touched: Mapping[int, Touched]) -> Iterator[Unplaced]:
    """Return pods, except those of leaving nodes, that go to uninitialized nodes, which are last in order.

    Nodes shared with other simulations hold pods of leaving nodes only.
    """
    first = snapshot.initialized
    if first == len(snapshot.states):
        return
    for index in sorted([index for index, here in touched.items() if index >= first and not here.shared]):
        name = snapshot.states[index].name
        for entry in touched[index].entries:
            if id(entry.pod) not in snapshot.leaving_ids:
                words = explain_uninitialized(entry.pod, name)
                yield Unplaced(pod=entry.pod, forgiven=entry.pending, explain=words)


def _too_many_types(claim: Claim, pod: Pod, *, forgiven: bool) -> Unplaced:
    pool = claim.template.name
    return Unplaced(
        pod=pod,
        forgiven=forgiven,
        explain=lambda: f"pool {pool} can't keep its minValues with the {TYPES_MAX} cheapest types alone",
    )


def new_node(snapshot: Snapshot, claim: Claim) -> NewNode | None:
    """Return a finished claim as a value; None if the cheapest types alone violate the pool's minValues."""
    machines = claim.reqs.table
    respected = snapshot.settings.preference_policy is PreferencePolicy.RESPECT
    reqs = final_requirements(claim, unnamed=snapshot.settings.rules.unnamed_reservations)
    kinds = tuple(machines.kinds[place] for place in sorted_types(claim.types, reqs))
    node = NewNode(
        pool=claim.template.name,
        instance_types=kinds[:TYPES_MAX],
        requirements=reqs.serialised,
        requests=final_requests(claim, snapshot.frame),
        pods=tuple(claim.pods),
        offered=reqs.goes_with,
        values_of=reqs.values_of,
        prices=reqs.prices,
        serves_only_others=not claim.own,
        min_values_relaxed=claim.short_values,
        taints=claim.template.taints,
        startup_taints=claim.template.startup_taints,
        kept_preferences=lambda: kept_preferences(claim) if respected else (),
    )
    strict = snapshot.settings.min_values_policy.value == "Strict"
    if len(kinds) > TYPES_MAX and strict and not node.check_min_values().met:
        return None
    return node


def place(snapshot: Snapshot) -> PlacementResult:
    """Place the pending pods; pods that can't be helped are listed with the reason."""
    found = simulate(snapshot, (), SimulationOptions(strict_reserved=True))
    ignored = tuple(
        Unplaced(pod=pod, forgiven=True, explain=lambda why=why: f"not looked at: {why}")  # type: ignore[misc]
        for pod, why in snapshot.ignored
    )
    return PlacementResult(existing=found.placements, new=found.new_nodes, unplaced=(*found.unplaced, *ignored))
