"""Scenes of what an engine finds: marks, earlier commands, a new leader, new settings, nodes to hold."""

import json
from dataclasses import replace

import msgspec

from dovetail.lifecycle.engine_state import EngineRole
from dovetail.lifecycle.messages import (
    AlertChanged,
    CatalogueChanged,
    Failure,
    HoldNode,
    LeadershipGained,
    LeadershipLost,
    SettingsChanged,
    Synced,
    ViewGrewOld,
)
from dovetail.model import names
from dovetail.model.objects import Node, NodeClaim, NodePool, Taint
from dovetail.model.settings import KARPENTER_1_15
from tests.lifecycle.scenes.stage import (
    DOLLAR,
    QUICK,
    scenario,
    stage,
)
from tests.support.conversation import (
    PODS,
    SAVES,
    Talk,
    pool,
)
from tests.support.lifecycle_world import CALM, EMPTY_CATALOGUE, World


@scenario
def marks_that_belong_to_no_command() -> list[str]:
    """Remove taints and records without a command in managed pools; leave those in other pools."""
    talk = Talk()
    world = stage(talk, a="", b="")
    world.put(pool("other", managed=False))
    world.add_node("c", pool="other")
    world.add_node("d", pool="other")
    world.add_node("e")
    ours = Taint(key=names.DISRUPTION_TAINT, value=names.DISRUPTION_TAINT_VALUE, effect="NoSchedule")
    for name in ("a", "c", "e"):
        node = world.get(Node, name)
        assert node is not None
        world.put(msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=(ours,))))
    going = world.get(Node, "e")
    assert going is not None
    gone = msgspec.structs.replace(going.metadata, deletion_timestamp=world.now)
    world.put(msgspec.structs.replace(going, metadata=gone))
    base = {"v": 1, "id": "0123456789ab", "action": "replaceDrifted", "method": "drifted", "phase": "launching"}
    record = {**base, "since": "2026-03-02T08:59:00Z", "nodes": [], "replacements": ["b-claim", "x"], "pools": ["web"]}
    sealed = world.seal.sealed(json.dumps(record))
    for name in ("b", "d"):
        node = world.get(Node, name)
        assert node is not None
        world.annotate(node, **{names.COMMAND: sealed})
    failures = [Failure.THROTTLED, Failure.UNREACHABLE, Failure.CONFLICT, Failure.THROTTLED]
    world.fail = lambda asked: failures.pop(0) if failures and asked.id.startswith("sweep") else None
    talk.begin().run(8)
    again = world.get(Node, "a")
    assert again is not None
    talk.see(msgspec.structs.replace(again, spec=msgspec.structs.replace(again.spec, taints=(ours,))))
    talk.run(52)
    other = world.get(Node, "b")
    assert other is not None
    talk.see(msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, taints=(ours,))))
    talk.run(40)
    return talk.lines


@scenario
def predecessors_commands() -> list[str]:
    """Find commands that are complete, incomplete or leaving; leave another controller's commands alone."""
    lines = []
    for seconds in (16, 20, 58, 65, 90):
        talk = Talk(QUICK)
        stage(talk, a="replace", b="")
        talk.begin().run(seconds)
        for identity, controller in (("other", "karpenter"), ("two", "dovetail")):
            world = talk.world if identity == "two" else _copy(talk.world)
            role = EngineRole(identity=identity, controller=controller)
            successor = Talk(QUICK, role, world=world, limit=0)
            successor.begin().run(150)
            lines += [f"{identity} from {seconds}", *successor.brief()]
    return lines


def _copy(world: World) -> World:
    return replace(world, objects=dict(world.objects), agenda=list(world.agenda))


@scenario
def predecessors_command_without_pools() -> list[str]:
    """Find a record that names a replacement without its pool: roll it back in time; no pool backs off."""
    talk = Talk(QUICK)
    world = stage(talk, a="", b="")
    ours = Taint(key=names.DISRUPTION_TAINT, value=names.DISRUPTION_TAINT_VALUE, effect="NoSchedule")
    claim = world.get(NodeClaim, "a-claim")
    node = world.get(Node, "a")
    assert claim is not None
    assert node is not None
    base = {"v": 1, "id": "0123456789ab", "action": "replaceDrifted", "method": "drifted", "phase": "launching"}
    taken = [{"node": "a", "claim": "a-claim", "uid": claim.metadata.uid, "pool": "web"}]
    record = {**base, "since": "2026-03-02T08:59:00Z", "nodes": taken, "replacements": ["r"], "pools": []}
    marks = {names.COMMAND: world.seal.sealed(json.dumps(record))}
    world.put(msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=(ours,))))
    tainted = world.get(Node, "a")
    assert tainted is not None
    world.annotate(tainted, **marks)
    world.put(msgspec.convert({"metadata": {"name": "r", "annotations": marks}}, NodeClaim, strict=False))
    talk.begin().run(100)
    return talk.lines


@scenario
def the_lead_is_lost_and_won_again() -> list[str]:
    """Lose and regain leadership: the engine reads its commands from the cluster and reports nothing twice."""
    talk = Talk(QUICK)
    world = stage(talk, a="replace", b="delete")
    talk.begin().run(20)
    talk.send(LeadershipGained())
    talk.send(LeadershipLost())
    talk.send(LeadershipLost())
    talk.run(30)
    talk.send(LeadershipGained())
    talk.run(100)
    world.add_node("late", want="delete")
    talk.flush()
    talk.run(60)
    return talk.lines


@scenario
def the_view_grows_old() -> list[str]:
    """Decide and do nothing until every kind of object was listed again."""
    talk = Talk(QUICK)
    world = stage(talk, a="delete")
    talk.begin().run(5)
    talk.send(ViewGrewOld(kinds=("Node", "Pod")))
    world.add_node("b", want="delete")
    talk.flush()
    talk.run(30)
    talk.send(Synced())
    talk.run(80)
    return talk.lines


@scenario
def settings_catalogue_and_alert_change() -> list[str]:
    """Change settings, catalogue and alert: each starts a round; nodes of newly named pools are held."""
    talk = Talk(CALM)
    world = talk.world
    world.put(pool("web", managed=False))
    world.put(pool("named", managed=False, disruption={"budgets": [{"nodes": "many"}]}))
    world.add_node("a", want="delete")
    world.add_node("b", pool="named")
    talk.begin().run(25)
    talk.send(CatalogueChanged(catalogue=EMPTY_CATALOGUE))
    talk.run(15)
    talk.send(AlertChanged(why="too many errors"))
    talk.run(15)
    talk.send(SettingsChanged(settings=replace(CALM, pools=("named",))))
    talk.run(35)
    talk.send(AlertChanged(why=""))
    talk.see(pool("named", managed=False))
    talk.send(SettingsChanged(settings=replace(CALM, pools=("web",))))
    talk.run(60)
    return talk.lines


@scenario
def observing() -> list[str]:
    """Report each proposal once and write nothing; all pools count if none is labelled."""
    talk = Talk(CALM, EngineRole(observe=True))
    world = talk.world
    world.put(pool("web", managed=False, disruption={"budgets": [{"nodes": "many"}]}))
    world.add_node("a", want="replace2", **{SAVES: str(DOLLAR // 4), PODS: "3"})
    talk.begin().run(35)
    world.add_node("b", want="delete")
    talk.flush()
    talk.run(20)
    return talk.lines


@scenario
def karpenters_own_loop() -> list[str]:
    """Run Karpenter's profile: it waits for its launches and validations, and holds no nodes."""
    talk = Talk(KARPENTER_1_15, EngineRole(identity="k", controller="karpenter", holds=False))
    world = stage(talk, a="cost-replace", b="cost-delete", c="replace")
    talk.planner.refuse = lambda command: "not now" if talk.planner.validations == 2 else ""
    talk.begin().run(150)
    world.put(NodeClaim(metadata=msgspec.convert({"name": "unlaunched"}, type(world.all(Node)[0].metadata))))
    talk.flush()
    talk.run(15)
    talk.lose_sight("NodeClaim", "unlaunched")
    talk.run(25)
    return talk.lines


@scenario
def holds_come_first() -> list[str]:
    """Decide nothing on nodes that are not held yet, for at most half a minute."""
    lines = []
    for failing in (1, 3, 1000):
        talk = Talk(CALM, EngineRole(holds_first=True))
        stage(talk, a="delete", b="")
        left = [failing]

        def fail(asked, left=left):  # type: ignore[no-untyped-def]
            if isinstance(asked, HoldNode) and left[0]:
                left[0] -= 1
                return Failure.CONFLICT
            return None

        talk.world.fail = fail
        talk.begin().run(45)
        talk.world.put(pool("other", managed=False))
        talk.world.add_node("c", pool="other", want="delete")
        talk.flush()
        talk.run(5)
        talk.see(pool("other"))
        talk.run(45)
        lines += [f"failing {failing}", *talk.lines]
    return lines


@scenario
def holds_are_put_on_and_taken_off() -> list[str]:
    """Keep a person's mark, release pools that are no longer managed, and retry failures."""
    talk = Talk(CALM)
    world = stage(talk, a="")
    world.add_node("b", **{names.DO_NOT_DISRUPT: "true"})
    world.add_node("c", pool="")
    failures = [Failure.THROTTLED, Failure.CONFLICT, Failure.FORBIDDEN, Failure.UNREACHABLE]
    world.fail = lambda asked: failures.pop(0) if failures and asked.id.startswith(("hold", "release")) else None
    talk.begin().run(80)
    talk.see(pool(managed=False))
    talk.run(20)
    talk.see(pool())
    talk.run(5)
    failures += [Failure.THROTTLED, Failure.THROTTLED]
    world.add_node("d")
    talk.flush()
    talk.lose_sight("Node", "d")
    talk.run(30)
    return talk.lines


@scenario
def a_pool_that_cannot_be_read() -> list[str]:
    """Report an unreadable pool once, retry a failed report, and report when it can be read again."""
    talk = Talk(CALM)
    world = talk.world
    world.put(pool(disruption={"budgets": [{"nodes": "many"}]}))
    world.put(pool("other", managed=False, disruption={"budgets": [{"nodes": "many"}]}))
    failures = [Failure.CONFLICT, Failure.THROTTLED]
    world.fail = lambda asked: failures.pop(0) if failures and asked.id.startswith("condition") else None
    talk.begin().run(40)
    talk.note(NodePool, "web", anything="new")
    talk.run(10)
    found = world.get(NodePool, "web")
    assert found is not None
    fine = msgspec.structs.replace(pool(), status=found.status)
    talk.see(fine)
    talk.run(20)
    broken = msgspec.structs.replace(found, status=found.status)
    talk.see(broken)
    talk.run(20)
    return talk.lines
