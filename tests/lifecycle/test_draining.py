"""A command that only waits for drains is looked at again when something of its own changed, and only then."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import LINGER, Run, View, look, waits_for_drains
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.messages import InstructionSucceeded
from dovetail.lifecycle.store import Store
from dovetail.model.command import Action, Method
from dovetail.model.objects import Node, NodeClaim

NOW = datetime(2026, 5, 13, tzinfo=UTC)
LOOKED_AT = 1000 * SECOND


def _item(kind: type[Any], name: str, **labels: str) -> Any:
    return msgspec.convert({"metadata": {"name": name, "uid": f"u-{name}", "labels": labels}}, kind)


def _store() -> Store:
    store = Store()
    for name in ("a", "b", "other"):
        store.observe(_item(Node, name))
        store.observe(_item(NodeClaim, f"{name}-claim"))
    return store


def _run(phase: Phase = Phase.DRAINING) -> Run:
    candidates = tuple(
        Candidate(node=name, claim=f"{name}-claim", uid=f"u-{name}-claim", pool="default") for name in ("a", "b")
    )
    return Run(
        id="c1", action=Action.DELETE_COST, method=Method.MULTI_NODE, candidates=candidates, phase=phase, began=NOW
    )


def _view(store: Store, elapsed: int = LOOKED_AT + SECOND) -> View:
    return View(
        store=store, elapsed=elapsed, now=NOW, replacement_timeout=0, launch_timeout=0, manages=lambda _pool: True
    )


def _asked(run: Run, _: Store) -> None:
    run.attempts.ask("c1/delete/a-claim", LOOKED_AT)


def _answered(run: Run, _: Store) -> None:
    run.attempts.answer(InstructionSucceeded(id="c1/delete/a-claim"), LOOKED_AT)


Change = Callable[[Run, Store], object]
CHANGES: dict[str, tuple[Change, bool]] = {
    "nothing": (lambda run, store: None, True),
    "another node": (lambda run, store: store.observe(_item(Node, "other", x="1")), True),
    "another node goes": (lambda run, store: store.vanish("Node", "", "other"), True),
    "its node": (lambda run, store: store.observe(_item(Node, "a", x="1")), False),
    "its node goes": (lambda run, store: store.vanish("Node", "", "b"), False),
    "its claim": (lambda run, store: store.observe(_item(NodeClaim, "b-claim", x="1")), False),
    "its claim goes": (lambda run, store: store.vanish("NodeClaim", "", "a-claim"), False),
    "an instruction was asked for": (_asked, False),
    "an instruction was answered": (_answered, False),
    "it is time to ask again": (lambda run, store: setattr(run, "retry_at", LOOKED_AT + SECOND), False),
    "it is not yet time to ask again": (lambda run, store: setattr(run, "retry_at", LOOKED_AT + 2 * SECOND), True),
    "a node has lingered long enough": (
        lambda run, store: run.claim_gone_at.update({"a": LOOKED_AT + SECOND - LINGER}),
        False,
    ),
    "another phase": (lambda run, store: setattr(run, "phase", Phase.WAITING), False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_wakes_a_draining_command(change: str) -> None:
    """Its nodes, their claims, its instructions and its times do; other objects don't."""
    apply, waits = CHANGES[change]
    run, store = _run(), _store()
    if change == "an instruction was answered":
        _asked(run, store)
    assert not waits_for_drains(run, _view(store, LOOKED_AT)), "the first look is never left out"
    look(run, _view(store, LOOKED_AT))
    assert waits_for_drains(run, _view(store, LOOKED_AT))
    apply(run, store)
    assert waits_for_drains(run, _view(store)) is waits
