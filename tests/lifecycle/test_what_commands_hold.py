"""Ordered evictions, final checks, the nodes that commands hold, and leftovers of earlier engines."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.commands import evictions, flight, resume, steps, surging
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Evicted, Run, View
from dovetail.lifecycle.commands.last_look import objection
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import (
    DOVETAIL,
    Record,
    read_record,
)
from dovetail.lifecycle.messages import (
    ClearRecord,
    DeleteNodeClaim,
    EvictPod,
    Failure,
    UntaintNode,
)
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import Action, Command, Method, Placement, Replacement
from dovetail.model.objects import AnyObject, Node, NodeClaim, Pod
from dovetail.scheduling.pods.surge import SURGE
from tests.support.command_cases import (
    DISRUPTED,
    NOW,
    STAMP,
    answered,
    candidate,
    claim,
    its_claim,
    node,
    record,
    run,
    view,
)
from tests.support.conversation import deployment, pod, replica_set

SIZE = (True, -1000, -(2**20))
"""Of a pod as `pod` builds it: no certain node, one CPU, 1 MiB."""

# ---------------------------------------------------------------- evictions and surges


def bare(name: str, **requests: str) -> Pod:
    """Return a pod on node a that requests only these resources."""
    tree = msgspec.to_builtins(pod(name, "a"))
    tree["spec"]["containers"][0]["resources"]["requests"] = requests
    return msgspec.convert(tree, Pod, strict=False)


def test_who_is_evicted_in_which_order() -> None:
    """Pods with node requirements go first, then by CPU and memory, then by name."""
    zone = [{"matchExpressions": [{"key": "z", "operator": "Exists"}]}]
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zone}}}
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    leaving = msgspec.to_builtins(pod("leaving", "a", "rs", cpu="9"))
    leaving["metadata"]["deletionTimestamp"] = STAMP
    items = [
        pod("small", "a", cpu="1", memory="1Mi"), pod("much", "a", cpu="1", memory="2Mi"), pod("big", "a", cpu="2"),
        pod("also", "a", cpu="1", memory="1Mi"), pod("selects", "a", cpu="1m", nodeSelector={"disk": "ssd"}),
        pod("affine", "a", cpu="2m", affinity=required), pod("prefers", "a", cpu="3", affinity=preferred),
        pod("daemon", "a", "ds", kind="DaemonSet", cpu="9"), pod("elsewhere", "b", cpu="9"),
        pod("kept", "a", cpu="9", annotations={names.DO_NOT_DISRUPT: "true"}),
        msgspec.convert(leaving, Pod, strict=False), pod("nothing", "a", cpu="0", memory="0"),
        pod("least", "a", cpu="1m", memory="0"), bare("bare"), bare("amount", cpu="1n"), bare("mem", memory="1"),
    ]  # fmt: skip
    made = run("a", phase=Phase.EVICTING)
    seen = view(*items, evicts=True)
    order = []
    while found := evictions.next_pods(made, seen):
        order += [entry.metadata.name for entry in found]
        made.attempts.ask(evictions.evict_id(made, found[0]), 0)
    assert order == [
        "affine", "selects", "prefers", "big", "much", "also", "small", "amount", "least", "mem", "bare", "nothing"
    ]  # fmt: skip
    assert evictions.evict_id(made, items[0]) == "mine/evict/d/small/small"
    assert made.to_evict is not None
    assert len(made.to_evict) == 12
    seen.store.observe(pod("late", "a", cpu="5"))
    assert evictions.next_pods(made, seen) == [], "who came since is the drain's"


@pytest.mark.parametrize(
    ("method", "evicts", "pods", "wanted"),
    [
        (Method.SINGLE_NODE, True, True, True),
        (Method.MULTI_NODE, True, True, True),
        (Method.DRIFTED, True, True, False),
        (Method.SINGLE_NODE, False, True, False),
        (Method.SINGLE_NODE, True, False, False),
    ],
)
def test_when_evictions_come_first(method: Method, evicts: bool, pods: bool, wanted: bool) -> None:
    """Ordered evictions run for cost commands with pods to move, if the setting is on."""
    seen = view(*([pod("x", "a")] if pods else []), evicts=evicts)
    assert evictions.is_wanted(run("a", method=method), seen) == wanted


@pytest.mark.parametrize(
    ("waited", "answer", "bound", "pending", "landed"),
    [
        (0, None, "", "", False),
        (5999, None, "rs", "", False),
        (6000, None, "", "", True),
        (999, "", "", "", False),
        (999, "", "other", "", False),
        (0, "", "rs", "", True),
        (999, "", "rs", "rs", False),
        (999, "", "rs", "other", True),
        (1000, "", "", "", True),
        (1000, "", "", "rs", False),
        (1000, "", "", "other", True),
        (5999, "", "", "rs", False),
        (6000, "", "", "rs", True),
        (0, Failure.THROTTLED, "", "rs", True),
    ],
)
def test_when_the_next_pod_goes(
    waited: int, answer: Failure | str | None, bound: str, pending: str, landed: bool
) -> None:
    """The next pod goes when a new one of the owner is bound, after one to six seconds, or at once after a refusal."""
    made = run("a", phase=Phase.EVICTING, phase_since=10 * SECOND)
    first = pod("x", "a")
    answered(made, evictions.evict_id(made, first), answer)
    evictions.note(made, first, view(first, pod("y", "a"), pod("old", "b"), elapsed=10 * SECOND))
    [evicted] = made.in_the_air
    assert evicted == Evicted("mine/evict/d/x/x", 10 * SECOND, "a", None, SIZE, ("rs",), frozenset({"x", "y", "old"}))
    items = [pod("y", "a"), pod("old", "b"), pod("v", "", "third")]
    items += [pod("w", "", pending)] if pending else []
    items += [pod("new", "b", bound)] if bound else []
    seen = view(*items, elapsed=10 * SECOND + waited * SECOND // 1000, evicts=True)
    assert bool(evictions.next_pods(replace(made), seen)) == landed
    asked = steps.instructions(made, seen)
    assert [type(order) for order in asked] == ([EvictPod] if landed else [])
    if landed:
        siblings = frozenset(item.metadata.uid for item in seen.store.pods_owned_by("rs"))
        assert made.in_the_air == (Evicted("mine/evict/d/y/y", seen.elapsed, "a", None, SIZE, ("rs",), siblings),)
    assert evictions.is_over(made, seen) is False
    alone = view(*items[1:], elapsed=seen.elapsed, evicts=True)
    last = replace(made, in_the_air=(evicted,))
    assert evictions.is_over(last, alone) == landed


def _plan(places: dict[str, str], new: tuple[str, ...] = ()) -> Command:
    placed = tuple(Placement(node=to, pods=tuple(f"d/{name}" for name, at in places.items() if at == to))
                   for to in dict.fromkeys(places.values()))  # fmt: skip
    launched = (Replacement(node_pool="web", instance_types=("m",), pods=tuple(f"d/{name}" for name in new)),)
    return Command(
        action=Action.DELETE_COST, method=Method.MULTI_NODE, nodes=("a", "b"), placements=placed,
        replacements=launched if new else (), savings=1,
    )  # fmt: skip


def _wave(made: Run, seen: View) -> list[str]:
    return [order.name for order in steps.instructions(made, seen) if isinstance(order, EvictPod)]


def test_side_by_side_only_where_places_differ() -> None:
    """Pods of one size for other places go at once; those for the same place wait for it, and so do unplanned ones.

    A node's next eviction waits for the answer to its last one: each writes the record that names all of them.
    """
    sizes = {"p1": "9", "p2": "9", "p3": "9", "p4": "9", "p5": "9", "p6": "9"}
    on = {"p1": "a", "p2": "b", "p3": "c", "p4": "a", "p5": "d", "p6": "e"}
    places = {"p1": "x", "p2": "x", "p3": "y", "p4": "z"}
    made = run("a", "b", "c", "d", "e", phase=Phase.EVICTING)
    made.command = _plan(places, new=("p5",))
    pods = [pod(name, on[name], f"rs-{name}", cpu=cpu) for name, cpu in sizes.items()]
    seen = view(*pods, evicts=True, evicts_side_by_side=True)
    assert _wave(made, seen) == ["p1", "p3", "p5"], "p2 waits for p1, p4 for the answer of node a, p6 has no place"
    assert _wave(made, seen) == []
    for name in ("p1", "p3", "p5"):
        answered(made, f"mine/evict/d/{name}/{name}", "")
    assert _wave(made, seen) == ["p4"], "node a has answered"
    seen.store.observe(pod("new-1", "x", "rs-p1"))
    assert _wave(made, seen) == ["p2"], "p1 is bound again"
    late = view(*pods, evicts=True, evicts_side_by_side=True, elapsed=6 * SECOND)
    assert _wave(made, late) == ["p6"], "nothing is in the air"
    assert not evictions.is_over(made, late)


def test_side_by_side_each_pod_of_an_owner_has_to_come_back() -> None:
    """Of two pods of one owner that left together, the place of each is free again only when two new ones came."""
    made = run("a", "b", phase=Phase.EVICTING)
    made.command = _plan({"p1": "x", "p2": "y", "p3": "x"})
    pods = [pod("p1", "a", cpu="3"), pod("p2", "b", cpu="3"), pod("p3", "b", cpu="3")]
    seen = view(*pods, evicts=True, evicts_side_by_side=True)
    assert _wave(made, seen) == ["p1", "p2"]
    for name in ("p1", "p2"):
        answered(made, f"mine/evict/d/{name}/{name}", "")
    seen.store.observe(pod("new-1", "x"))
    assert _wave(made, seen) == []
    seen.store.observe(pod("new-2", "y"))
    assert _wave(made, seen) == ["p3"]


def test_side_by_side_a_smaller_pod_waits() -> None:
    """It could take the room that a larger one in the air needs, wherever the plan puts it."""
    made = run("a", "b", "c", phase=Phase.EVICTING)
    made.command = _plan({"p1": "x", "p2": "y", "p3": "z"})
    pods = [pod("p1", "a", "rs-1", cpu="3"), pod("p2", "b", "rs-2", cpu="3"), pod("p3", "c", "rs-3", cpu="2")]
    seen = view(*pods, evicts=True, evicts_side_by_side=True)
    assert _wave(made, seen) == ["p1", "p2"]
    for name in ("p1", "p2"):
        answered(made, f"mine/evict/d/{name}/{name}", "")
    seen.store.observe(pod("new-1", "x", "rs-1"))
    assert _wave(made, seen) == [], "p2 is in the air"
    seen.store.observe(pod("new-2", "y", "rs-2"))
    assert _wave(made, seen) == ["p3"]


def test_side_by_side_is_bounded() -> None:
    """At most twenty pods of a command are on their way at a time."""
    names_ = [f"p{number:02d}" for number in range(25)]
    made = run(*names_, phase=Phase.EVICTING)
    made.command = _plan({name: f"to-{name}" for name in names_})
    seen = view(*[pod(name, name, f"rs-{name}", cpu="1") for name in names_], evicts=True, evicts_side_by_side=True)
    assert _wave(made, seen) == names_[:20]
    for name in names_[:3]:
        answered(made, f"mine/evict/d/{name}/{name}", Failure.THROTTLED)
    assert _wave(made, seen) == names_[20:23], "what a PDB refuses is the drain's, and waited for by nobody"


def test_evictions_end_with_the_patience_or_the_right() -> None:
    """Evictions end after exactly three minutes, or when one is forbidden."""
    made = run("a", phase=Phase.EVICTING, phase_since=10 * SECOND)
    assert not evictions.is_over(made, view(pod("y", "a"), elapsed=190 * SECOND - 1))
    assert evictions.is_over(made, view(pod("y", "a"), elapsed=190 * SECOND))
    answered(made, "mine/evict/d/y/y", Failure.FORBIDDEN)
    assert evictions.is_over(made, view(pod("x", "a"), elapsed=10 * SECOND))
    unasked = run("a", phase=Phase.EVICTING, in_the_air=(Evicted("unknown", 0, "a", None, SIZE, (), frozenset()),))
    assert evictions.next_pods(unasked, view(pod("y", "a")))


def test_surges_come_first_where_they_are_wanted() -> None:
    """Deployments that ask for a surge roll first; their pods are found through the ReplicaSet."""
    rolls = (deployment("app", **{SURGE: "true"}), replica_set("app-1", of="app"), pod("x", "a", "app-1"))
    made = run("a")
    assert surging.is_wanted(made, view(*rolls))
    assert not surging.is_wanted(made, view(*rolls, surges=False))
    assert not surging.is_wanted(run("b"), view(*rolls))
    assert not surging.is_over(made, view(*rolls))
    for lone in (pod("x", "a", ""), pod("x", "a", "app-1"), pod("x", "a", "other")):
        assert not surging.waiting(made, view(deployment("app", **{SURGE: "true"}), replica_set("other"), lone))
    assert surging.mark(made) == "2026-05-11T12:00:00Z mine"
    assert list(surging.waiting(run("a"), view(*rolls))) == ["d/app"]


ROLLS = "pod d/x on node a must leave by its Deployment's rolling update"
PROTECTED = {names.DO_NOT_DISRUPT: "true"}


@pytest.mark.parametrize(
    ("order", "item", "why"),
    [
        ({}, pod("x", "a"), ""),
        ({}, pod("x", "a", annotations=PROTECTED), "pod d/x on node a must not be disrupted"),
        ({"spares_protected": False}, pod("x", "a", annotations=PROTECTED), ""),
        ({"roll_first": (("d", "rs"),)}, pod("x", "a"), ROLLS),
        ({"roll_first": (("d", "rs"),), "spares_protected": False}, pod("x", "a"), ""),
        ({"roll_first": (("d", "other"),)}, pod("x", "a"), ""),
        ({"roll_first": (("d", "rs"),)}, pod("x", "a", phase="Succeeded"), ""),
        ({"roll_first": (("d", "rs"),)}, pod("x", "a", leaving=True), ""),
        ({}, pod("x", "a", annotations=PROTECTED, leaving=True), ""),
        ({"only_empty": True}, pod("x", "a"), "node a is no longer empty: pod d/x is on it"),
        ({"only_empty": True}, pod("x", "a", "ds", kind="DaemonSet"), ""),
        ({"only_empty": True}, pod("x", "a", phase="Failed"), ""),
    ],
)  # fmt: skip
def test_last_look(order: dict[str, Any], item: Pod, why: str) -> None:
    """The final check lists the objections of a node's pods in order."""
    asked = DeleteNodeClaim(id="1", command_id="mine", name="c", uid="u", node="a", **order)
    assert objection(asked, [pod("first", "a", "ds", kind="DaemonSet"), item], NOW) == why


# ---------------------------------------------------------------- plans and left-overs


def test_what_commands_hold_on_to() -> None:
    """Commands hold their nodes, replacements and destinations, and nodes nominated for pending pods."""
    command = Command(
        action=Action.REPLACE_COST,
        method=Method.SINGLE_NODE,
        nodes=("a",),
        placements=(Placement(node="dest", pods=()),),
    )
    made = run("b", "a", replacements=("r", "s"), command=command)
    other = run("a", id="other")
    assert [(entry.node, entry.command_id) for entry in flight.leaving([other, made])] == [
        ("a", "mine"), ("a", "other"), ("b", "mine"),
    ]  # fmt: skip
    waiting = msgspec.to_builtins(pod("w"))
    waiting["status"]["nominatedNodeName"] = "goal"
    seen = view(claim("r", on="r-node"), claim("s"), pod("v"), msgspec.convert(waiting, Pod, strict=False))
    found = flight.nominated(flight.Targets().of([made, other]), ["old"], seen.store)
    assert found == ("dest", "goal", "old", "r", "r-node", "s")


@pytest.mark.parametrize(
    ("item", "phase", "launches", "places"),
    [
        (None, Phase.VALIDATING, True, []),
        (None, Phase.TAINTING, True, []),
        (None, Phase.LAUNCHING, True, []),
        (None, Phase.WAITING, False, []),
        (None, Phase.DELETING, False, []),
        (claim("r"), Phase.WAITING, True, []),
        (claim("r", provider="p"), Phase.WAITING, False, ["r"]),
        (claim("r", provider="p", on="rn"), Phase.DRAINING, False, ["r", "rn"]),
        (claim("r"), Phase.ROLLING_BACK, None, []),
        (claim("r"), Phase.FINISHING, None, []),
    ],
)
def test_what_is_under_way(item: NodeClaim | None, phase: Phase, launches: bool | None, places: list[str]) -> None:
    """Pods still on the nodes are planned for a launch or, once known, for its machine."""
    spec = Replacement(node_pool="web", instance_types=("m",), pods=("d/x", "d/gone"))
    command = Command(
        action=Action.REPLACE_COST,
        method=Method.SINGLE_NODE,
        nodes=("a",),
        replacements=(spec,),
        placements=(Placement(node="dest", pods=("d/y", "d/gone")), Placement(node="none", pods=("d/gone",))),
    )
    made = run("a", phase=phase, replacements=("r",), command=command)
    seen = view(pod("x", "a"), pod("y", "a"), *([] if item is None else [item]))
    found = flight.Plans().under_way([run("b"), made], seen.store)
    assert found.launches == ((replace(spec, pods=("d/x",)),) if launches else ())
    kept = [] if launches is None else [Placement(node="dest", pods=("d/y",))]
    assert list(found.placements) == [*(Placement(node=place, pods=("d/x",)) for place in places), *kept]


def test_a_plan_has_a_name_for_every_replacement() -> None:
    """A plan with more or fewer names than replacements is an error."""
    spec = Replacement(node_pool="web", instance_types=("m",))
    command = Command(
        action=Action.REPLACE_COST, method=Method.SINGLE_NODE, nodes=("a",), replacements=(spec, spec)
    )  # fmt: skip
    with pytest.raises(ValueError, match="zip"):
        flight.Plans().under_way([run("a", replacements=("r",), command=command)], Store())


def test_whether_pods_have_come() -> None:
    """A replacement has its pods if pods other than its daemons run on it; a deleted one waits for none."""
    assert flight.has_pods("r", Store())
    assert not flight.has_pods("r", view(claim("r", on="n")).store)
    daemons = (pod("d", "n", "ds", kind="DaemonSet"), pod("m", "n", "n", kind="Node"))
    assert not flight.has_pods("r", view(claim("r", on="n"), *daemons).store)
    assert flight.has_pods("r", view(claim("r", on="n"), *daemons, pod("x", "n")).store)
    assert flight.has_pods("r", view(claim("r", on="n"), pod("x", "n", "")).store)


@pytest.mark.parametrize(
    ("item", "unlaunched"),
    [
        (claim("c"), True),
        (claim("c", provider="p"), False),
        (claim("c", on="n"), False),
        (claim("c", leaving=True), False),
    ],
)
def test_whether_a_machine_is_unknown(item: NodeClaim, unlaunched: bool) -> None:
    """A machine is unknown if its claim is not being deleted and has no provider id and no node."""
    assert view(claim("other", provider="q"), item).store.has_unlaunched() == unlaunched


@pytest.mark.parametrize(
    ("items", "taken", "bound"),
    [
        ((node("a"), its_claim("a")), "", True),
        ((node("a"),), "", False),
        ((its_claim("a"),), "", False),
        ((node("a"), its_claim("a")), "a", False),
        ((node("a"), its_claim("a")), "b", True),
    ],
)
def test_which_nodes_can_be_bound(items: tuple[AnyObject, ...], taken: str, bound: bool) -> None:
    """A command can take nodes with a claim, of a managed pool, in no other command."""
    command = Command(action=Action.DELETE_COST, method=Method.SINGLE_NODE, nodes=("a",))
    seen = view(*items)
    found = flight.bind_to_claims(command, seen.store, lambda name: name == taken, lambda of: of == "web")
    assert found == ((candidate("a"),) if bound else None)
    assert flight.bind_to_claims(command, seen.store, lambda name: False, lambda of: False) is None
    unnamed = msgspec.to_builtins(its_claim("a"))
    unnamed["metadata"]["uid"] = ""
    blank = view(node("a"), msgspec.convert(unnamed, NodeClaim, strict=False))
    assert flight.bind_to_claims(command, blank.store, lambda name: False, lambda of: True) is None


def leftovers(*items: AnyObject, known: str = "") -> resume.Leftovers:
    """Return what is found in these objects; `known` is a command that continues."""
    return resume.find(view(*items).store, DOVETAIL, {known}, lambda of: of == "web")


def test_left_over_commands_are_found_once() -> None:
    """A leftover command is found by its latest record; known commands are skipped."""
    early, late = record("one", "a", since=NOW), record("one", "a", since=NOW + timedelta(seconds=1))
    found = leftovers(
        node("a", DISRUPTED, **{names.COMMAND: early}),
        claim("r", annotations={names.COMMAND: late}),
        node("b", DISRUPTED, of="two"),
        claim("z", annotations={names.COMMAND: "junk"}),
    )
    assert [(entry.id, entry.since) for entry in found.records] == [("one", NOW + timedelta(seconds=1)), ("two", NOW)]
    assert found.sweeps == (ClearRecord(id="sweep/clear/z", command_id="", node_claim="z"),)
    assert [entry.id for entry in leftovers(node("b", DISRUPTED, of="two"), known="two").records] == []
    assert leftovers(claim("r", of="two"), known="two").records == ()
    assert leftovers(node("b", DISRUPTED, of="two", leaving=True)).records == ()
    same = record("one", "a", since=NOW, replacements=("later",))
    pair = leftovers(claim("a", annotations={names.COMMAND: early}), claim("b", annotations={names.COMMAND: same}))
    assert pair.records[0].replacements == (), "of two of one time the first"
    turned = leftovers(claim("a", annotations={names.COMMAND: early}), claim("b", annotations={names.COMMAND: late}))
    assert turned.records[0].since == NOW + timedelta(seconds=1), "the latest, also if it is seen last"


def test_pods_evicted_from_any_node_are_known() -> None:
    """Each Node's record names its own pods; the command is found with all of them."""
    texts = [record("one", "a", "b", since=NOW, evicted=(pod,)) for pod in ("d/x", "d/y")]
    nodes = [node(name, DISRUPTED, **{names.COMMAND: text}) for name, text in zip("ab", texts, strict=True)]
    assert leftovers(*nodes).records[0].evicted == ("d/x", "d/y")
    [found] = leftovers(*nodes).records
    made = resume.take_over(found, taken=lambda name: False, now=NOW, elapsed=0, timeout=SECOND)
    assert made.evicted_before == ("d/x", "d/y")


@pytest.mark.parametrize(
    ("items", "sweep"),
    [
        ((node("a", DISRUPTED),), UntaintNode(id="sweep/untaint/a", command_id="", node="a")),
        ((node("a", DISRUPTED, leaving=True),), None),
        (
            (node("a", **{names.COMMAND: record("one", "b")}),),
            UntaintNode(id="sweep/untaint/a", command_id="one", node="a"),
        ),
        (
            (node("a", DISRUPTED, **{names.COMMAND: record("one", "b")}), its_claim("a")),
            UntaintNode(id="sweep/untaint/a", command_id="one", node="a"),
        ),
        (
            (node("a", **{names.COMMAND: record("one", "b")}), its_claim("a")),
            ClearRecord(id="sweep/clear/c-a", command_id="one", node_claim="c-a"),
        ),
        ((node("a", **{names.COMMAND: record("one", "b")}), its_claim("a", of="one")), None),
    ],
)  # fmt: skip
def test_marks_that_are_swept(items: tuple[AnyObject, ...], sweep: object) -> None:
    """An unsigned taint, and a copied record of another node, are removed."""
    found = leftovers(*items)
    assert list(found.sweeps) == ([] if sweep is None else [sweep])


def test_marks_of_other_pools_stay() -> None:
    """Marks in unmanaged pools stay, because others may use the same key."""
    tree = msgspec.to_builtins(node("a", DISRUPTED))
    tree["metadata"]["labels"] = {names.NODEPOOL: "other"}
    assert leftovers(msgspec.convert(tree, Node, strict=False)).sweeps == ()


@pytest.mark.parametrize(
    ("ago", "left"), [(timedelta(seconds=10), 50 * SECOND), (timedelta(seconds=60), 0), (timedelta(seconds=90), 0),
                      (timedelta(microseconds=3), 60 * SECOND - 3000), (timedelta(seconds=-5), 60 * SECOND)],
)  # fmt: skip
def test_a_command_is_taken_over_with_the_rest_of_its_time(ago: timedelta, left: int) -> None:
    """A successor keeps the deadline, and leaves nodes that another command holds."""
    found = read_record(record("one", "a", "b", since=NOW - ago, replacements=("r",)))
    assert isinstance(found, Record)
    made = resume.take_over(found, taken=lambda name: name == "a", now=NOW, elapsed=7 * SECOND, timeout=60 * SECOND)
    assert (made.deadline, made.nodes, made.replacements) == (7 * SECOND + left, ("b",), ("r",))
    assert (made.phase, made.began_at, made.phase_since) == (Phase.FOUND, 7 * SECOND, 7 * SECOND)
