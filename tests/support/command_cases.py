"""Commands, their objects and views of them, in a few words: for tables of cases."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import (
    Run,
    View,
)
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import (
    Candidate,
    Record,
    encode_record,
)
from dovetail.lifecycle.messages import (
    Failure,
    InstructionFailed,
    InstructionSucceeded,
)
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import Action, Method
from dovetail.model.objects import AnyObject, Node, NodeClaim
from dovetail.scheduling.pods.surge import surging_sets

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)
STAMP = "2026-05-11T12:00:00Z"
DISRUPTED = {"key": names.DISRUPTION_TAINT, "value": names.DISRUPTION_TAINT_VALUE, "effect": "NoSchedule"}
OTHER = {"key": "team", "value": "blue", "effect": "NoSchedule"}


def candidate(name: str, of: str = "web") -> Candidate:
    """Return a candidate whose claim is `c-NAME` with the uid `u-NAME`."""
    return Candidate(node=name, claim=f"c-{name}", uid=f"u-{name}", pool=of)


def run(*nodes: str, phase: Phase = Phase.TAINTING, method: Method = Method.SINGLE_NODE, **more: Any) -> Run:
    """Return a command on these nodes."""
    return Run(
        id=more.pop("id", "mine"),
        action=more.pop("action", Action.DELETE_COST),
        method=method,
        candidates=tuple(map(candidate, nodes)),
        phase=phase,
        began=NOW,
        **more,
    )


def record(
    ident: str = "mine",
    *nodes: str,
    since: datetime = NOW,
    replacements: tuple[str, ...] = (),
    evicted: tuple[str, ...] = (),
) -> str:
    """Return a command's record."""
    return encode_record(
        Record(
            id=ident,
            action=Action.DELETE_COST,
            method=Method.SINGLE_NODE,
            phase="tainting",
            since=since,
            nodes=tuple(map(candidate, nodes)),
            replacements=replacements,
            pools=("web",) * len(replacements),
            evicted=evicted,
        )
    )


def node(name: str, *taints: dict[str, str], of: str = "", leaving: bool = False, **annotations: str) -> Node:
    """Return a Node; `of`: the command whose record it carries."""
    notes = {**annotations, **({names.COMMAND: record(of, name)} if of else {})}
    meta: dict[str, Any] = {"name": name, "annotations": notes, "labels": {names.NODEPOOL: "web"}}
    if leaving:
        meta["deletionTimestamp"] = STAMP
    spec = {"taints": taints, "providerID": f"m-{name}"}
    return msgspec.convert({"metadata": meta, "spec": spec}, Node, strict=False)


def claim(name: str, uid: str = "", on: str = "", **parts: Any) -> NodeClaim:
    """Return a NodeClaim; `of`: the command whose record it carries."""
    notes = dict(parts.get("annotations", {}))
    if parts.get("of"):
        notes[names.COMMAND] = record(parts["of"])
    meta: dict[str, Any] = {"name": name, "uid": uid or f"uid-{name}", "annotations": notes}
    if parts.get("leaving"):
        meta["deletionTimestamp"] = STAMP
    conditions = [
        {"type": kind, "status": status, "reason": reason} for kind, status, reason in parts.get("conditions", ())
    ]
    machine = parts.get("provider", f"m-{on}" if on else "")
    status = {"nodeName": on, "providerID": machine, "conditions": conditions}
    return msgspec.convert({"metadata": meta, "status": status}, NodeClaim, strict=False)


def its_claim(name: str, **parts: Any) -> NodeClaim:
    """Return the claim of a candidate."""
    return claim(f"c-{name}", parts.pop("uid", f"u-{name}"), name, **parts)


def view(*items: AnyObject, elapsed: int = 0, **more: Any) -> View:
    """Return a view of these objects."""
    store = Store()
    for item in items:
        store.observe(item)
    times = {"replacement_timeout": 60 * SECOND, "launch_timeout": 30 * SECOND, "drain_patience": 20 * SECOND}
    fields: dict[str, Any] = {**times, **more}
    fields.setdefault("manages", lambda of: of == "web")
    fields.setdefault("surging_sets", lambda: surging_sets(store.deployments(), store.replica_sets()))
    return View(store=store, elapsed=elapsed, now=NOW, **fields)


def answered(made: Run, ident: str, answer: Failure | str | None, at: int = 0, *, what: type | None = None) -> Run:
    """Send a request of a class; `answer`: the failure, or the uid of a success; None: no answer."""
    made.attempts.ask(ident, at, what=what)
    if isinstance(answer, Failure):
        made.attempts.answer(InstructionFailed(id=ident, failure=answer), at)
    elif answer is not None:
        made.attempts.answer(InstructionSucceeded(id=ident, uid=answer), at)
    return made
