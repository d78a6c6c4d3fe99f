"""A command is checked again only if one of its objects changed or its time has come."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import LINGER, Evicted, Run
from dovetail.lifecycle.commands.lookout import ALWAYS, Lookout
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.store import Store
from dovetail.model.command import Action, Method
from dovetail.model.objects import NodeClaim, Pod

NOW = datetime(2026, 5, 13, tzinfo=UTC)
LOOKED_AT = 1000 * SECOND


def _item(kind: type[Any], name: str, **labels: str) -> Any:
    return msgspec.convert({"metadata": {"name": name, "uid": f"u-{name}", "labels": labels}}, kind)


def _store() -> Store:
    store = Store()
    claim = _item(NodeClaim, "r")
    store.observe(msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, node_name="r-node")))
    return store


def _run(phase: Phase = Phase.DRAINING) -> Run:
    candidates = tuple(
        Candidate(node=name, claim=f"{name}-claim", uid=f"u-{name}-claim", pool="default") for name in ("a", "b")
    )
    return Run(
        id="c1",
        action=Action.REPLACE_COST,
        method=Method.MULTI_NODE,
        candidates=candidates,
        replacements=("r",),
        phase=phase,
        began=NOW,
    )


def _asked(run: Run, _: Store, lookout: Lookout) -> None:
    run.attempts.ask("c1/delete/a-claim", LOOKED_AT)
    lookout.is_new_for(run.id)


Change = Callable[[Run, Store, Lookout], object]
CHANGES: dict[str, tuple[Change, bool]] = {
    "nothing": (lambda run, store, lookout: None, False),
    "another node": (lambda run, store, lookout: lookout.object_changed("other"), False),
    "its node": (lambda run, store, lookout: lookout.object_changed("a"), True),
    "its claim": (lambda run, store, lookout: lookout.object_changed("b-claim"), True),
    "its replacement": (lambda run, store, lookout: lookout.object_changed("r"), True),
    "its replacement's node": (lambda run, store, lookout: lookout.object_changed("r-node"), True),
    "another command": (lambda run, store, lookout: lookout.is_new_for("c2"), False),
    "an instruction was asked for": (_asked, True),
    "pools or settings": (lambda run, store, lookout: lookout.all_changed(), True),
}


def _looked_at(run: Run, store: Store) -> Lookout:
    """Return a lookout right after a command was checked."""
    lookout = Lookout()
    assert lookout.chosen({run.id: run}, LOOKED_AT, something_happened=True) == [run], (
        "the first look is never left out"
    )
    run.looked_at = LOOKED_AT
    lookout.looked_at(run, store)
    assert lookout.chosen({run.id: run}, LOOKED_AT, something_happened=True) == ([run] if run.phase in ALWAYS else [])
    return lookout


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.VALIDATING, Phase.WAITING, Phase.FINISHING])
@pytest.mark.parametrize("change", CHANGES)
def test_what_wakes_a_command(change: str, phase: Phase) -> None:
    """A change of a command's nodes, claims, replacements or instructions wakes it once; other objects do not."""
    apply, wakes = CHANGES[change]
    run, store = _run(phase), _store()
    run.deadline = run.validate_at = LOOKED_AT + 100 * SECOND
    lookout = _looked_at(run, store)
    apply(run, store, lookout)
    expected = [run] if wakes else []
    assert lookout.chosen({run.id: run}, LOOKED_AT + SECOND, something_happened=True) == expected
    assert lookout.chosen({run.id: run}, LOOKED_AT + SECOND, something_happened=True) == []


@pytest.mark.parametrize(("after", "wakes"), [(1, False), (2, True), (3, True)])
@pytest.mark.parametrize("something_happened", [True, False])
def test_a_time_that_has_come(after: int, wakes: bool, something_happened: bool) -> None:
    """A command is checked from the time that it asked for, whether or not anything changed."""
    run, store = _run(), _store()
    run.retry_at = LOOKED_AT + 2 * SECOND
    lookout = _looked_at(run, store)
    assert lookout.next_at(LOOKED_AT) == run.retry_at
    now = LOOKED_AT + after * SECOND
    assert lookout.chosen({run.id: run}, now, something_happened=something_happened) == ([run] if wakes else [])
    assert lookout.chosen({run.id: run}, now, something_happened=False) == ([run] if wakes else []), "until it is done"
    assert lookout.next_at(run.retry_at) is None, "what is due is no longer to come"


@pytest.mark.parametrize("phase", [Phase.TAINTING, Phase.VALIDATING, Phase.DRAINING])
def test_a_node_that_has_lingered_long_enough(phase: Phase) -> None:
    """A node that has outlived its NodeClaim for a minute no longer counts."""
    run, store = _run(phase), _store()
    run.deadline = run.validate_at = LOOKED_AT + 100 * SECOND
    run.claim_gone_at["a"] = LOOKED_AT + SECOND - LINGER
    lookout = _looked_at(run, store)
    assert lookout.chosen({run.id: run}, LOOKED_AT + SECOND - 1, something_happened=True) == []
    assert lookout.chosen({run.id: run}, LOOKED_AT + SECOND, something_happened=True) == [run]


@pytest.mark.parametrize("phase", ALWAYS)
def test_phases_in_which_pods_count(phase: Phase) -> None:
    """In these phases any change wakes a command; a found command is checked every turn."""
    run, store = _run(phase), _store()
    run.deadline, run.looked_at = LOOKED_AT + 100 * SECOND, LOOKED_AT
    lookout = _looked_at(run, store)
    found = lookout.chosen({run.id: run}, LOOKED_AT + 1, something_happened=False)
    assert found == ([run] if phase is Phase.FOUND else [])


@pytest.mark.parametrize(
    ("owner", "node", "wakes"), [("o-1", "n", True), ("o-2", "n", True), ("o-3", "n", False), ("o-1", "", False)]
)
@pytest.mark.parametrize("phase", [Phase.EVICTING, Phase.DRAINING])
def test_the_pod_that_the_next_eviction_waits_for(owner: str, node: str, wakes: bool, phase: Phase) -> None:
    """A pod that has a node wakes the command that evicted a pod of the same owner, until the evictions are over."""
    run, store = _run(phase), _store()
    run.in_the_air = (Evicted("c1/evict/default/p/u", LOOKED_AT, "n", None, (True, 0, 0), ("o-1", "o-2"), frozenset()),)
    lookout = _looked_at(run, store)
    tree = {"metadata": {"name": "p", "ownerReferences": [{"uid": owner}]}, "spec": {"nodeName": node}}
    pod = msgspec.convert(tree, Pod)
    assert lookout.pod_changed(pod) == (wakes and phase is Phase.EVICTING)
    lookout.forget(run.id)
    assert not lookout.pod_changed(pod)


def test_news_wait_until_they_are_asked_for() -> None:
    """A change is not lost if only times were queried."""
    run, store = _run(), _store()
    lookout = _looked_at(run, store)
    lookout.object_changed("a")
    assert lookout.chosen({run.id: run}, LOOKED_AT, something_happened=False) == []
    assert lookout.chosen({run.id: run}, LOOKED_AT, something_happened=True) == [run]


def test_a_command_that_is_over_is_forgotten() -> None:
    """The lookout keeps nothing of a finished command."""
    run, store = _run(), _store()
    lookout = _looked_at(run, store)
    lookout.forget(run.id)
    lookout.object_changed("a")
    assert lookout.next_at(LOOKED_AT) is None
    assert lookout.chosen({}, LOOKED_AT, something_happened=True) == []


@pytest.mark.parametrize(("ago", "again"), [(LINGER - 1, True), (LINGER, False), (LINGER + 1, False)])
def test_a_time_that_had_come_at_the_last_look_is_not_looked_at_again(ago: int, again: bool) -> None:
    """A time that had passed at the last check does not wake the command again."""
    lookout, run, store = Lookout(), _run(), _store()
    run.looked_at, run.claim_gone_at = LOOKED_AT, {"a": LOOKED_AT - ago}
    lookout.chosen({run.id: run}, LOOKED_AT, something_happened=True)
    lookout.looked_at(run, store)
    assert lookout._lingers.get(run.id) == (LOOKED_AT - ago + LINGER if again else None)


def test_commands_are_chosen_oldest_first() -> None:
    """Whatever is new for which command, the older ones come first, and the youngest is one that is new itself."""
    runs: dict[str, Run] = {}
    for ident in ("z", "b", "y", "a"):
        runs[ident] = _run()
        runs[ident].id = ident
    lookout, store = Lookout(), _store()
    for run in lookout.chosen(dict(list(runs.items())[:3]), LOOKED_AT, something_happened=True):
        lookout.looked_at(run, store)
    lookout.is_new_for("y")
    lookout.is_new_for("z")
    lookout.is_new_for("gone")
    assert [run.id for run in lookout.chosen(runs, LOOKED_AT, something_happened=True)] == ["z", "y", "a"]
    assert [run.id for run in lookout.chosen(runs, LOOKED_AT, something_happened=True)] == ["a"]
    lookout.looked_at(runs["a"], store)
    lookout.forget("b")
    del runs["b"]
    lookout.object_changed("a")
    assert [run.id for run in lookout.chosen(runs, LOOKED_AT, something_happened=True)] == ["z", "y", "a"]
