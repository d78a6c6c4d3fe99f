"""Whether a Deployment's rolling update was begun for a command (spec section 20)."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.commands import surging
from dovetail.lifecycle.commands.command_run import Run, View
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.messages import InstructionSucceeded
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import Action, Method
from dovetail.model.objects import Deployment

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)


def deployment(**annotations: str) -> Deployment:
    """Build a Deployment whose pods carry these."""
    tree: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "d", "uid": "w", "resourceVersion": "1"},
        "spec": {"template": {"metadata": {"annotations": annotations}}},
    }
    return msgspec.convert(tree, Deployment, strict=False)


@pytest.mark.parametrize(
    ("marked", "answered", "rolled"),
    [
        ("", False, False),
        ("2026-05-11T11:00:00Z other", False, False),
        ("2026-05-11T12:00:00Z c1", False, True),
        ("", True, True),
        ("2026-05-11T11:00:00Z other", True, True),
        (None, False, True),
    ],
    ids=["untouched", "another's", "seen", "answered, not seen yet", "answered, then another's", "gone"],
)
def test_when_a_rolling_update_has_begun(marked: str | None, answered: bool, rolled: bool) -> None:
    """The answer or the mark, whichever comes first; a Deployment that is gone needs none."""
    store = Store()
    if marked is not None:
        store.observe(deployment(**({names.SURGED_AT: marked} if marked else {})))
    run = Run(
        id="c1", action=Action.DELETE_DRIFTED, method=Method.DRIFTED, candidates=(), phase=Phase.SURGING, began=NOW
    )
    if answered:
        ident = surging.surge_id(run, "d/web")
        run.attempts.ask(ident, 0)
        run.attempts.answer(InstructionSucceeded(id=ident), 0)
    view = View(store=store, elapsed=1, now=NOW, replacement_timeout=1, launch_timeout=1, manages=lambda pool: True)
    assert surging.is_rolled(run, "d/web", view) == rolled
