"""What the leader knows that is on no object, as one document, and a question that uses it (docs/rules.md#one-truth).

The leader publishes it (`live.publish`), so that `plan`, `explain`, `top` and `ui` beside a running controller answer
as the controller does. What is in flight is read from the records on the objects; the document adds where the
commands' pods are to go. Bounded in size: what does not fit is left out, least important first, and named. Pure. Sits
in lifecycle, above `engine`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.api.policy import effective_policy
from dovetail.decide.in_flight import InFlight, Resting
from dovetail.decide.question import CostHold, Question
from dovetail.lifecycle.commands import flight, resume
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import DOVETAIL, Candidate, Record, record_of
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.json_forms import decode_value, encode_value
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.command import Command
from dovetail.model.objects import Node, NodeClaim
from dovetail.model.persistence import Persistence
from dovetail.model.policies.daemon_like import with_daemon_like
from dovetail.model.policies.managed import managed_pools
from dovetail.model.settings import Settings
from dovetail.model.timing.duration import MINUTE
from dovetail.model.waste import Wasted

VERSION: Final = 1
BYTES_MAX: Final = 256 << 10
"""A ConfigMap may hold a MiB; a quarter of it is enough for thousands of nodes."""
_DROPPED: Final = (
    *("pod_events", "waste", "commands", "settling_nodes", "resting", "unsettled", "lingering", "restless"),
    *("earning", "persistence"),
)
"""What is left out of a document that is too large, in this order."""
_SECOND: Final = timedelta(seconds=1)
_ALIKE: Final = 2 * MINUTE
"""Learned durations that differ by less are about the same."""
_LATE: Final = timedelta(seconds=30)
"""How long after its validation is due a command may still carry no record."""


class StateError(ValueError):
    """A published state that can't be used; the message says why."""


class PublishedCommand(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A command in progress: where its pods are to go. `validating_until`: its nodes carry no record before that."""

    id: str
    candidates: tuple[Candidate, ...]
    began: datetime
    command: Command
    validating_until: datetime | None = None


class PublishedState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the leader knows at one moment; the fields of `Question` and `InFlight` have their meaning there.

    `by`: the identity on the Lease. `refused`: pools on which the API server refuses Dovetail's writes, and until when
    nothing starts there. `lingering`: replacements of ended commands that are still nominated. `left_out`: the fields
    that did not fit.
    """

    version: int = VERSION
    by: str
    at: datetime
    program: str = ""
    settings: Settings
    catalogue: str = ""
    managed_pools: tuple[str, ...] = ()
    refused: Mapping[str, datetime] = {}
    settling: Mapping[str, CostHold] = {}
    settling_nodes: Mapping[str, CostHold] = {}
    back_off: Mapping[str, datetime] = {}
    regrown: Mapping[str, datetime] = {}
    resting: Mapping[str, Resting] = {}
    restless: Mapping[str, datetime] = {}
    earning: Mapping[str, datetime] = {}
    persistence: Mapping[str, Persistence] = {}
    lingering: Mapping[str, datetime] = {}
    unsettled: Mapping[str, str] = {}
    waste: Mapping[str, Wasted] = {}
    pod_events: Mapping[str, datetime] = {}
    commands: tuple[PublishedCommand, ...] = ()
    alert: str = ""
    may_surge: bool = True
    left_out: tuple[str, ...] = ()

    def says_the_same(self, other: "PublishedState | None") -> bool:
        """Return whether both lead to about the same answers, whatever the times of writing.

        Waste that grew as told says nothing new, nor does a duration that was learned anew and is about the same.
        """
        return other is not None and _timeless(self) == _timeless(other)


def _timeless(state: PublishedState) -> PublishedState:
    rates = {name: msgspec.structs.replace(entry, amount=0, at=_EPOCH) for name, entry in state.waste.items()}
    lasts = {
        name: msgspec.structs.replace(entry, learned=entry.learned // _ALIKE)
        for name, entry in state.persistence.items()
    }
    return msgspec.structs.replace(state, at=_EPOCH, waste=rates, persistence=lasts)


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00Z")


# ------------------------------------------------------------ writing


def state_of(engine: Engine, program: str = "") -> PublishedState:
    """Return what an engine knows now that is on no object."""
    question = engine.question()
    flying = question.in_flight
    refused, lingering = engine.published_waits()
    return PublishedState(
        by=engine.identity,
        at=question.now,
        program=program,
        settings=replace(question.settings, alert_gate=None),  # its URL may hold a password; `alert` has its answer
        catalogue=question.catalogue.source,
        managed_pools=engine.managed_pools(),
        refused=_ends(refused),
        settling=_holds(question.settling),
        settling_nodes=_holds(question.settling_nodes),
        back_off=_ends(flying.back_off),
        regrown=_ends(flying.regrown),
        resting={
            name: msgspec.structs.replace(entry, until=_whole(entry.until)) for name, entry in flying.resting.items()
        },
        restless=_ends(question.restless),
        earning=_ends(question.earning),
        persistence=_persistence(question),
        lingering=_ends(lingering),
        unsettled=question.unsettled,
        waste=question.waste if question.settings.rules.waste else {},
        pod_events=_pod_events(question, engine.store),
        commands=tuple(_commands(engine)),
        alert=question.alert,
        may_surge=question.may_surge,
    )


def _persistence(question: Question) -> dict[str, Persistence]:
    """Return how long savings last in the pools that price restarts: only there the load is known."""
    return {pool: shown for pool, shown in question.persistence.items() if shown.calm_since is not None}


def _whole(at: datetime) -> datetime:
    """Return a time rounded up to a second, so that rounding in clocks is not taken for a change."""
    return at if at.microsecond == 0 else at.replace(microsecond=0) + _SECOND


def _ends(times: Mapping[str, datetime]) -> dict[str, datetime]:
    return {name: _whole(until) for name, until in sorted(times.items())}


def _holds(holds: Mapping[str, CostHold]) -> dict[str, CostHold]:
    return {name: msgspec.structs.replace(hold, until=_whole(hold.until)) for name, hold in sorted(holds.items())}


def _pod_events(question: Question, store: Store) -> dict[str, datetime]:
    """Return the pod events that a timer still counts from and that the NodeClaim does not tell."""
    waits: dict[str, timedelta] = {}
    for pool in store.node_pools():
        policy = effective_policy(pool, question.settings)
        longest = (policy.consolidate_after or 0) + (policy.grace_period or 0)
        waits[pool.metadata.name] = timedelta(microseconds=longest // 1000)
    found = {}
    for name, at in sorted(question.pod_events.items()):
        claim = store.claim_of(name)
        wait = None if claim is None else waits.get(claim.metadata.labels.get(names.NODEPOOL, ""))
        if claim is None or wait is None or at + wait <= question.now:
            continue
        known = claim.status.last_pod_event_time
        if known is None or known < at - _SECOND:
            found[name] = at
    return found


def _commands(engine: Engine) -> Iterable[PublishedCommand]:
    for run in engine.runs:
        if run.command is not None and run.phase in flight.PLANNED:
            due = engine.validated_at(run) if run.phase is Phase.VALIDATING else None
            yield PublishedCommand(
                id=run.id,
                candidates=run.candidates,
                began=run.began,
                command=run.command,
                validating_until=None if due is None else _whole(due),
            )


def encode_state(state: PublishedState, most: int = BYTES_MAX) -> bytes:
    """Return the document, at most so many bytes long."""
    text = msgspec.json.encode(state, enc_hook=encode_value)
    for name in _DROPPED:
        if len(text) <= most:
            return text
        empty: object = () if name == "commands" else {}
        if getattr(state, name):
            state = msgspec.structs.replace(state, **{name: empty}, left_out=(*state.left_out, name))
            text = msgspec.json.encode(state, enc_hook=encode_value)
    if len(text) > most:
        raise StateError(f"the controller's state has {len(text):,} bytes; {most:,} are allowed")
    return text


# ------------------------------------------------------------ reading


class _Head(msgspec.Struct):
    version: int = 0
    program: str = ""


def decode_state(text: str | bytes) -> PublishedState:
    """Read a document; raise StateError with the reason if it can't be used."""
    if len(text) > 4 * BYTES_MAX:
        raise StateError("it is too long")
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.version != VERSION:
            raise StateError(f"its version {head.version} is not known here")
        return msgspec.json.decode(text, type=PublishedState, dec_hook=decode_value)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
        raise StateError(str(error)) from None


def store_of(cluster: Cluster) -> Store:
    """Return a store with the objects of a cluster that commands in progress are about."""
    store = Store()
    for items in (cluster.node_pools, cluster.node_claims, cluster.nodes, cluster.pods):
        for item in items:
            store.observe(item)
    return store


def in_flight_of(store: Store, now: datetime, state: PublishedState | None = None) -> InFlight:
    """Return what commands in progress reserve, by the records on the objects and what the leader published."""
    runs = list(_runs(store, now, state))
    lingering: list[str] = []
    if state is not None:
        lingering = [
            name for name, until in state.lingering.items() if until > now and not flight.has_pods(name, store)
        ]
    targets = {name for run in runs for name in (*run.replacements, *run.destinations)}
    return InFlight(
        leaving=flight.leaving(runs),
        nominated=flight.nominated(targets, lingering, store),
        under_way=flight.Plans().under_way(runs, store),
        back_off={} if state is None else _open(state.back_off, now),
        regrown={} if state is None else _open(state.regrown, now),
        resting={} if state is None else {name: rest for name, rest in state.resting.items() if rest.until > now},
    )


def _open(times: Mapping[str, datetime], now: datetime) -> dict[str, datetime]:
    return {name: until for name, until in times.items() if until > now}


def _runs(store: Store, now: datetime, state: PublishedState | None) -> Iterable[Run]:
    """Yield the commands in progress: those with a record, and those that wait for their validation."""
    published = {} if state is None else {entry.id: entry for entry in state.commands}
    taken: dict[str, None] = {}
    for record in _records(store):
        run = resume.take_over(record, taken=taken.__contains__, now=now, elapsed=0, timeout=0)
        taken |= dict.fromkeys(run.nodes)
        known = published.pop(record.id, None)
        if known is not None and len(known.command.replacements) == len(run.replacements):
            launched = all(store.get(NodeClaim, name) is not None for name in run.replacements)
            run.phase = Phase.WAITING if launched else Phase.LAUNCHING
            run.command, run.began = known.command, known.began
        yield run
    for entry in published.values():
        due = entry.validating_until
        if due is not None and now < due + _LATE and not any(item.node in taken for item in entry.candidates):
            command = entry.command
            run = Run(
                id=entry.id,
                action=command.action,
                method=command.method,
                candidates=entry.candidates,
                phase=Phase.VALIDATING,
                began=entry.began,
            )
            flight.adopt(run, command, entry.candidates, entry.began)
            yield run


def _records(store: Store) -> Iterable[Record]:
    """Return the latest record of every command of Dovetail, oldest first, also of nodes that are being deleted."""
    found: dict[str, Record] = {}
    claims = (store.get(NodeClaim, name) for name in store.marks.claims)
    nodes = (store.get(Node, name) for name in store.marks.nodes)
    for item in (*claims, *nodes):
        record = None if item is None else record_of(item)
        if item is None or record is None or record.by != DOVETAIL:
            continue
        if isinstance(item, NodeClaim) or any(entry.node == item.metadata.name for entry in record.nodes):
            known = found.get(record.id)
            if known is None or known.since < record.since:
                found[record.id] = record
    return sorted(found.values(), key=lambda record: (record.since, record.id))


def live_question(question: Question, state: PublishedState | None, store: Store | None = None) -> Question:
    """Return the question of a live cluster with what is in flight there and what its leader published.

    Pods that the question's settings call a node's own are read as that, as the controller reads them. `store`: one
    with the cluster's objects, if there is one already.
    """
    now = question.now
    question = replace(question, cluster=with_daemon_like(question.cluster, question.settings.daemon_like))
    flying = in_flight_of(store_of(question.cluster) if store is None else store, now, state)
    if state is None:
        return replace(question, in_flight=flying)
    # Which pools are managed follows from their labels now and from the settings, so a minute's delay doesn't matter.
    managed = managed_pools(question.cluster.node_pools, state.settings)
    refused = _open(state.refused, now)
    return replace(
        question,
        in_flight=flying,
        managed_pools=tuple(name for name in managed if name not in refused) if managed else question.managed_pools,
        settling={name: hold for name, hold in state.settling.items() if hold.until > now},
        settling_nodes={name: hold for name, hold in state.settling_nodes.items() if hold.until > now},
        alert=state.alert,
        may_surge=state.may_surge,
        unsettled=state.unsettled,
        pod_events=state.pod_events,
        waste=state.waste,
        restless=_open(state.restless, now),
        earning=_open(state.earning, now),
        persistence=state.persistence,
    )
