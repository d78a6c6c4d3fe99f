"""Whole conversations of the engine with a scripted world, to the second: `conversations/*.txt` holds each.

A test elsewhere says what must hold; these say what happens, so that nothing changes unseen: an instruction more or
less, another time to wake up, another question to the planner. After a change that is meant, write them again with
`python -m tests.lifecycle.test_conversations` and read what has changed.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import zip_longest
from pathlib import Path

import msgspec
import pytest

from dovetail.decide.outcome import BlockedMove, BudgetRow
from dovetail.decide.steering_plan import SteeringPlan, Victim
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.engine_state import EngineRole
from dovetail.lifecycle.messages import (
    AlertChanged,
    CatalogueChanged,
    ClearRecord,
    CreateNodeClaim,
    DeleteNodeClaim,
    EvictPod,
    Failure,
    ForgetDisruption,
    HaltPool,
    HoldNode,
    Instruction,
    LeadershipGained,
    LeadershipLost,
    NoteDisruption,
    SetDisruptionReason,
    SettingsChanged,
    SurgeDeployment,
    Synced,
    TaintNode,
    UntaintNode,
    ViewGrewOld,
)
from dovetail.lifecycle.reports import Report
from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.objects import Condition, Node, NodeClaim, NodePool, Taint
from dovetail.model.policies.reasons import Reason
from dovetail.model.settings import KARPENTER_1_15, Stabilization, StabilizationEnds, SteeringMode
from dovetail.scheduling.pods.surge import SURGE
from tests.support.conversation import (
    ACTION,
    METHOD,
    PODS,
    SAVES,
    WITH,
    Talk,
    deployment,
    pod,
    pool,
    replica_set,
    stateful_set,
)
from tests.support.lifecycle_world import CALM, EMPTY_CATALOGUE, T0, Crash, World

FOLDER = Path(__file__).parent / "conversations"
QUICK = replace(CALM, replacement_timeout=120 * SECOND)
IN_ORDER = replace(QUICK, evictions_in_order=True)
PAUSES = replace(CALM, stabilization=Stabilization(empty=20 * SECOND, expired=0, drifted=60 * SECOND, cost=90 * SECOND))
LANDS = replace(PAUSES, stabilization_ends=StabilizationEnds.LANDED)
RATE = {"disruption": {"budgets": [{"nodes": "2", "per": "1h"}, {"nodes": "10%"}]}}
WITHIN = {names.POLICY_ANNOTATION: json.dumps({"health": {"movedPodsReadyWithin": "60s"}})}
HANDS_OFF = {names.ALWAYS_DO_NOT_DISRUPT: "true"}
DOLLAR = 10**18

Scenario = Callable[[], list[str]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Register a conversation under the function's name."""
    SCENARIOS[function.__name__] = function
    return function


def stage(talk: Talk, **wishes: str) -> World:
    """Put a managed pool, a node for every wish, and a pod on each."""
    world = talk.world
    world.put(pool())
    world.put(replica_set(replicas=len(wishes)))
    for name, wish in wishes.items():
        world.add_node(name, want=wish)
        world.put(pod(f"on-{name}", name))
    return world


# ---------------------------------------------------------------- one command


@scenario
def delete_that_goes_well() -> list[str]:
    """A drifted node goes; its pods go where the plan says."""
    talk = Talk()
    world = stage(talk, rest="")
    world.add_node("a", want="delete", to="rest")
    return talk.begin().run(90).lines  # type: ignore[attr-defined, no-any-return]


@scenario
def replace_that_goes_well() -> list[str]:
    """Two new nodes first; they stay nominated until their pods have come, or for a minute."""
    talk = Talk()
    world = stage(talk, a="replace2", rest="")
    talk.begin().run(90)
    first = world.created[0]
    talk.see(pod("moved", f"{first}-node"), pod("daemon", f"{world.created[1]}-node", "ds", kind="DaemonSet"))
    talk.run(90)
    return talk.lines


@scenario
def replacements_under_way() -> list[str]:
    """What rounds are told of a command's pods and its new nodes, before and after each machine is known."""
    talk = Talk()
    world = stage(talk, a="replace2", b="", to="")
    world.launches = False
    talk.begin().run(20)
    first, second = world.created
    claim = world.get(NodeClaim, first)
    assert claim is not None
    talk.see(msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, provider_id="p1")))
    talk.see(pod("waits", nominatedNodeName="b"))
    talk.run(10)
    world.initialize(first)
    talk.flush()
    talk.run(10)
    world.initialize(second)
    talk.flush()
    talk.run(60)
    return talk.lines


@scenario
def several_commands_side_by_side() -> list[str]:
    """Each is validated without those that were found after it; one is refused and gives way to the others."""
    talk = Talk()
    stage(talk, a="delete", b="replace", c="delete")
    talk.planner.all_at_once = True
    talk.planner.refuse = lambda command: "not now" if command.nodes == ("a",) and talk.planner.validations < 8 else ""
    talk.begin().run(120)
    return talk.lines


@scenario
def refused_again_and_again() -> list[str]:
    """The same refusal twice running waits for the next poll."""
    talk = Talk()
    stage(talk, a="delete")
    talk.planner.refuse = lambda command: "never"
    talk.begin().run(100)
    return talk.lines


@scenario
def refused_commands_give_way() -> list[str]:
    """A command that is refused is not begun again while those that were in validation then still are."""
    talk = Talk(replace(CALM, poll_interval=SECOND))
    world = stage(talk, a="delete")
    talk.planner.refuse = lambda command: "not yet" if talk.planner.validations <= 3 else ""
    talk.begin()
    for seconds, name in ((2, "x"), (2, "c"), (4, "b")):
        talk.run(seconds)
        world.add_node(name, want="delete")
        talk.flush()
    talk.run(45)
    return talk.lines


@scenario
def a_command_of_two_pools() -> list[str]:
    """Each pool's start is noted with its own nodes; the pools of its candidates pause, wait and are left alone."""
    talk = Talk(PAUSES)
    world = talk.world
    for name in ("web", "two"):
        world.put(pool(name, **RATE))
    world.put(pool("three"))
    world.add_node("a", want="cost-replace2", **{WITH: "b c d"})
    for name, of in (("b", "two"), ("c", "web"), ("d", "three"), ("rest", "web")):
        world.add_node(name, pool=of)
    talk.begin().run(150)
    return talk.lines


@scenario
def a_command_of_a_pool_that_waits_for_an_earlier_one() -> list[str]:
    """One of its two pools is enough: the last cost action there did not hold."""
    talk = Talk(CALM, catalogue=_catalogue())
    world = stage(talk, a="cost-delete", rest="")
    world.put(pool("two"))
    talk.begin().run(25)
    talk.lose_sight("Pod", "on-a", "d")
    talk.see(_provisioned("back", "back", **LAUNCHED), pod("new-a", "back"))
    talk.run(10)
    world.add_node("b", pool="two", want="cost-delete", **{WITH: "rest"})
    talk.flush()
    talk.run(30)
    return talk.lines


@scenario
def pools_that_recover() -> list[str]:
    """A command that ends well ends the row of failures: the next one waits for the first time again."""
    lines = []
    for kind in (CreateNodeClaim, TaintNode):
        talk = Talk(QUICK)
        world = stage(talk, a="replace", b="replace", c="replace")
        failing = [True]
        world.fail = lambda asked, k=kind, f=failing: (  # type: ignore[misc]
            Failure.REFUSED if f[0] and isinstance(asked, k) else None
        )  # fmt: skip
        talk.planner.limit = 1
        talk.begin().run(120)
        failing[0] = False
        talk.run(200)
        failing[0] = True
        talk.run(150)
        lines += talk.brief()
    return lines


@scenario
def nodes_that_go_by_themselves() -> list[str]:
    """A command whose nodes are gone before, while and after it taints them."""
    lines = []
    for seconds in (5, 16, 25):
        talk = Talk()
        world = stage(talk, a="replace", b="delete")
        talk.planner.all_at_once = True
        world.fail = lambda asked: Failure.UNREACHABLE if isinstance(asked, TaintNode) else None
        talk.begin().run(seconds)
        talk.write("a and b vanish")
        for name in ("a", "b"):
            world.drop("Node", name)
            world.drop("NodeClaim", f"{name}-claim")
        talk.flush()
        talk.run(130)
        lines += talk.brief()
    return lines


# ---------------------------------------------------------------- what goes wrong


@scenario
def replacements_that_never_come() -> list[str]:
    """A roll-back at the time-out; the pool backs off, twice as long each time."""
    talk = Talk(QUICK)
    world = stage(talk, a="replace", b="delete")
    world.launches = False
    talk.begin().run(900)
    return talk.lines


@scenario
def one_of_two_replacements_never_comes() -> list[str]:
    """Only the pool of the one that is late backs off; both are taken back."""
    talk = Talk(QUICK)
    world = stage(talk, a="replace2")
    world.launches = False
    talk.begin().run(30)
    world.initialize(world.created[0])
    talk.flush()
    talk.run(200)
    return talk.lines


@scenario
def replacement_that_vanishes() -> list[str]:
    """A replacement that goes, seen and unseen, is not waited for."""
    lines = []
    for hidden in (False, True):
        talk = Talk(QUICK)
        world = stage(talk, a="replace2")
        world.launches = False
        talk.lose = lambda event, h=hidden, w=world: (  # type: ignore[misc]
            h and getattr(getattr(event, "object", None), "metadata", None) is not None
            and event.object.metadata.name in w.created[:1]
        )  # fmt: skip
        talk.begin().run(20)
        talk.lose_sight("NodeClaim", world.created[0])
        talk.run(100)
        lines += [f"hidden: {hidden}", *talk.brief()]
    return lines


@scenario
def replacement_that_is_being_deleted() -> list[str]:
    """One that somebody else deletes counts as gone at once."""
    talk = Talk(QUICK)
    world = stage(talk, a="replace")
    world.launches = False
    talk.begin().run(20)
    claim = world.get(NodeClaim, world.created[0])
    assert claim is not None
    world.delete_claim(claim)
    talk.flush()
    talk.run(60)
    return talk.lines


@scenario
def replacement_that_cannot_be_launched() -> list[str]:
    """By the condition Launched: at once for most reasons, after the launch time-out where it is under way."""
    lines = []
    for status, reason, provider in (
        ("False", "InsufficientCapacity", ""),
        ("False", "", ""),
        ("Unknown", "Launching", ""),
        ("Unknown", "AwaitingReconciliation", ""),
        ("True", "Launched", ""),
        ("True", "Launched", "p1"),
        ("Unknown", "Odd", ""),
    ):
        talk = Talk(QUICK)
        world = stage(talk, a="replace")
        world.launches = False
        talk.begin().run(25)
        claim = world.get(NodeClaim, world.created[0])
        assert claim is not None
        told = Condition(type=names.CONDITION_LAUNCHED, status=status, reason=reason, last_transition_time=world.now)
        shown = msgspec.structs.replace(claim.status, conditions=(told,), provider_id=provider)
        talk.see(msgspec.structs.replace(claim, status=shown))
        talk.run(140)
        lines += [f"{status} {reason} {provider}", *talk.brief()]
    return lines


@scenario
def hands_off_in_every_phase() -> list[str]:
    """A person's mark on the Node or its claim, or a pool that is no longer ours, undoes what can be undone."""
    lines = []
    for what in ("node", "claim", "pool"):
        for seconds in (5, 15, 30, 58, 70):
            talk = Talk(QUICK)
            world = stage(talk, a="replace", b="")
            talk.begin().run(seconds)
            lines.append(f"{what} at {seconds}")
            if what == "node" and world.get(Node, "a") is not None:
                talk.note(Node, "a", **HANDS_OFF)
            elif what == "claim" and world.get(NodeClaim, "a-claim") is not None:
                talk.note(NodeClaim, "a-claim", **HANDS_OFF)
            else:
                talk.see(pool(managed=False))
            talk.run(60)
            lines += [line for line in talk.brief() if float(line.split(" ")[0]) >= seconds]
    return lines


@scenario
def another_command_takes_the_node() -> list[str]:
    """The record of another command on a candidate ends this one, and its taint is left alone."""
    talk = Talk(QUICK)
    world = stage(talk, a="replace")
    talk.begin().run(20)
    node = world.get(Node, "a")
    assert node is not None
    record = json.loads(node.metadata.annotations[names.COMMAND])
    record = {**record, "id": "ffffffffffff", "by": "karpenter", "seal": ""}
    other = world.seal.sealed(json.dumps(record))
    talk.note(Node, "a", **{names.COMMAND: other})
    talk.run(100)
    return talk.lines


_KINDS: dict[str, type[Instruction]] = {
    "taint": TaintNode,
    "create": CreateNodeClaim,
    "delete": DeleteNodeClaim,
    "attribute": SetDisruptionReason,
    "clear": ClearRecord,
    "untaint": UntaintNode,
    "note": NoteDisruption,
    "forget": ForgetDisruption,
    "evict": EvictPod,
    "surge": SurgeDeployment,
}


def _short(talk: Talk) -> str:
    """Return a conversation in one line: what was asked for when, and how it ended."""
    asked = []
    for at, item in talk.log:
        ident = getattr(item, "id", "")
        parts = ident.split("/")
        if len(parts) > 1 and parts[0] not in ("event", "hold") and not isinstance(item, Report):
            seconds = (at - talk.log[0][0]).total_seconds()
            asked.append(f"{seconds:g}:{parts[1]}")
    left = [*talk.world.tainted(), *talk.world.recorded()]
    return f"{' '.join(asked)} -> {' '.join(talk.ends())}{' left: ' + ' '.join(left) if left else ''}"


def _with_everything(settings: object = IN_ORDER, **talk_parts: object) -> Talk:
    """Build a world in which a replacement's command notes, taints, launches, surges, evicts and deletes."""
    talk = Talk(settings, limit=1, **talk_parts)  # type: ignore[arg-type]
    world = talk.world
    world.put(pool(**RATE))
    world.put(deployment("app", **{SURGE: "true"}))
    world.put(replica_set("app-1", 2, of="app"))
    world.put(replica_set("rs", 2))
    world.add_node("a", want="cost-replace", **{SAVES: str(DOLLAR), PODS: "2"})
    world.put(pod("rolls", "a", "app-1"))
    world.put(pod("moves", "a", "rs"))

    def roll(asked: Instruction) -> Failure | None:
        if isinstance(asked, SurgeDeployment):
            world.later(5, lambda: world.drop("Pod", "rolls", "d"))
        return None

    world.fail = roll
    return talk


@scenario
def every_step_of_a_command() -> list[str]:
    """Note, taint, launch, surge, evict, delete, drain, clear."""
    talk = _with_everything()
    talk.begin().run(150)
    return talk.lines


@scenario
def every_instruction_fails_in_every_way() -> list[str]:
    """Once, or for two minutes, or for good: what is asked for again, what is given up, what is left."""
    lines = []
    for word, kind in _KINDS.items():
        for failure in Failure:
            for times in (1, 1000):
                talk = _with_everything()
                inner, left = talk.world.fail, [times]

                def fail(asked, inner=inner, left=left, kind=kind, failure=failure):  # type: ignore[no-untyped-def]
                    if isinstance(asked, kind) and left[0] > 0:
                        left[0] -= 1
                        return failure
                    undone = kind in (UntaintNode, ForgetDisruption) and isinstance(asked, DeleteNodeClaim)
                    return Failure.REFUSED if undone else inner(asked)

                talk.world.fail = fail
                talk.begin().run(240)
                lines.append(f"{word} {failure.value} {times}: {_short(talk)}")
    return lines


@scenario
def every_answer_is_lost() -> list[str]:
    """An answer that never comes: the step is asked for again, and the command ends all the same."""
    lines = []
    for word, kind in _KINDS.items():
        talk = _with_everything()
        asked: dict[str, None] = {}
        inner = talk.world.fail

        def fail(item, inner=inner, kind=kind, asked=asked):  # type: ignore[no-untyped-def]
            if isinstance(item, kind):
                asked[item.id] = None
            return inner(item)

        talk.world.fail = fail
        talk.lose = lambda event, asked=asked: getattr(event, "id", "") in asked  # type: ignore[misc]
        talk.begin().run(300)
        lines.append(f"{word}: {_short(talk)}")
    return lines


@scenario
def every_crash_is_taken_over() -> list[str]:
    """A successor finishes or undoes what it finds, whatever the last thing was that its predecessor did."""
    lines = []
    whole = _with_everything()
    whole.begin().run(150)
    for index in range(whole.acted):
        for carried_out in (False, True):
            talk = _with_everything()
            talk.crash_at = (index, carried_out)
            with pytest.raises(Crash):
                talk.begin().run(200)
            successor = Talk(IN_ORDER, EngineRole(identity="two"), world=talk.world, limit=0)
            successor.begin().run(200)
            lines.append(f"{index} {carried_out}: {_short(talk)} | {_short(successor)}")
    return lines


# ---------------------------------------------------------------- found on the cluster


@scenario
def marks_that_belong_to_no_command() -> list[str]:
    """Taints without a record on our pools are taken off, others are left; records of nobody are cleared."""
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
    talk.begin().run(60)
    other = world.get(Node, "b")
    assert other is not None
    talk.see(msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, taints=(ours,))))
    talk.run(40)
    return talk.lines


@scenario
def predecessors_commands() -> list[str]:
    """Found with everything, with parts missing, with every candidate leaving; another controller's are left alone."""
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
def the_lead_is_lost_and_won_again() -> list[str]:
    """All that belongs to acting is forgotten, and found again on the cluster; what was said twice is not."""
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
    """Nothing is decided or done until every kind is heard of again."""
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
    """Each makes a round of its own; nodes of pools that are named from now on are held."""
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
    """What would be done is told once; nothing is written, all pools count where none is labelled."""
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
    """The profile of Karpenter: it waits for its launches and validations, and holds nothing."""
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
    """Nothing is decided on nodes that are not held yet, for half a minute at most."""
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
    """A person's mark stays; a pool that is no longer ours is released; what fails is asked for again."""
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
    """It is told so once, again where that failed, and told when it is mended."""
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


# ---------------------------------------------------------------- what is remembered


@scenario
def cost_actions_pause() -> list[str]:
    """After each kind of action its own time; a cost command that is validated meanwhile is refused."""
    talk = Talk(PAUSES)
    world = stage(talk, a="cost-delete", b="delete", c="cost-delete", d="cost-replace")
    node = world.get(Node, "c")
    assert node is not None
    world.annotate(node, **{METHOD: "empty", ACTION: "deleteEmpty", SAVES: str(DOLLAR)})
    talk.planner.all_at_once = True
    talk.begin().run(400)
    return talk.lines


@scenario
def the_pause_ends_when_pods_have_landed() -> list[str]:
    """Half a minute at least, the window at most; not while a moved pod's owner lacks one, or one waits."""
    talk = Talk(LANDS)
    world = stage(talk, a="cost-delete", b="", c="cost-delete", d="cost-delete")
    talk.begin().run(38)
    talk.lose_sight("Pod", "on-a", "d")
    talk.see(pod("new-a"))
    talk.run(40)
    talk.see(pod("new-a", "b", ready=False))
    talk.run(12)
    talk.see(pod("new-a", "b"))
    talk.run(60)
    world.drop("Pod", "on-c", "d")
    world.drop("Pod", "on-d", "d")
    talk.flush()
    talk.run(200)
    return talk.lines


def _catalogue() -> Catalogue:
    offering = Offering(capacity_type="on-demand", zone="z1", price=DOLLAR // 10, price_float=0.1)
    return Catalogue(
        instance_types=(InstanceType(name="m", requirements=(), capacity={}, overhead={}, offerings=(offering,)),)
    )


def _provisioned(name: str, node: str, **labels: str) -> NodeClaim:
    """Build a NodeClaim that a provisioner made; named labels make it launched."""
    tree = {
        "metadata": {"name": name, "uid": name, "labels": {names.NODEPOOL: "web", **labels}},
        "status": {"nodeName": node},
    }
    return msgspec.convert(tree, NodeClaim, strict=False)


LAUNCHED = {names.INSTANCE_TYPE: "m", names.ZONE: "z1", names.CAPACITY_TYPE: "on-demand"}


@scenario
def a_node_comes_back_for_moved_pods() -> list[str]:
    """The pool waits before it tries another cost action, twice as long each time; other methods go on."""
    lines = []
    for settings in (CALM, replace(LANDS, stabilization=CALM.stabilization)):
        for price in (True, False):
            talk = Talk(settings, catalogue=_catalogue())
            world = stage(talk, a="cost-delete", b="cost-delete", c="", d="delete")
            for name, saves in (("a", DOLLAR), ("b", DOLLAR // 20)):
                node = world.get(Node, name)
                assert node is not None
                world.annotate(node, **{SAVES: str(saves)})
            talk.begin().run(25)
            talk.see(_provisioned("back", "", **(LAUNCHED if price else {})))
            talk.lose_sight("Pod", "on-a", "d")
            talk.see(pod("new-a"))
            talk.run(20)
            talk.see(_provisioned("back", "back", **(LAUNCHED if price else {})))
            talk.see(pod("new-a", "back"))
            talk.run(2000)
            lines += [f"{settings.stabilization_ends} {price}", *talk.without_wakes()]
    return lines


@scenario
def what_came_of_commands() -> list[str]:
    """After an hour: what was saved, which nodes were opened again, which pods were moved again."""
    talk = Talk(CALM, catalogue=_catalogue())
    world = stage(talk, a="cost-delete", b="", c="", rest="")
    node = world.get(Node, "a")
    assert node is not None
    world.annotate(node, **{SAVES: str(DOLLAR // 2), PODS: "2"})
    world.put(pod("second", "a", "rs2"))
    world.put(pod("daemon", "a", "ds", kind="DaemonSet"))
    world.put(pod("alone", "a", ""))
    talk.begin().run(60)
    talk.see(pod("again", "b", created=world.now.isoformat()))
    talk.run(300)
    talk.see(_provisioned("one", "one", **LAUNCHED))
    talk.see(_provisioned("two", ""))
    talk.run(300)
    talk.see(_provisioned("two", "two", **LAUNCHED))
    talk.see(_provisioned("three", ""))
    talk.lose_sight("NodeClaim", "three")
    talk.see(_provisioned("three", "", **LAUNCHED))
    talk.note(Node, "b", **{"test.dovetail.dev/want": "cost-delete", SAVES: str(DOLLAR), PODS: "1"})
    talk.run(3700)
    return [line for line in talk.lines if " wake " not in line and "round" not in line]


@scenario
def moved_pods_that_do_not_become_ready() -> list[str]:
    """The pool waits for them, halts when they stay away, goes on when they are back."""
    talk = Talk(CALM)
    world = talk.world
    world.put(pool(annotations=WITHIN))
    world.put(replica_set("rs", 2))
    world.put(stateful_set("db", None))
    world.add_node("a", want="delete")
    world.add_node("b", want="")
    for item in (pod("one", "a"), pod("two", "b"), pod("three", "a", "db", kind="StatefulSet")):
        world.put(item)
    failures = [Failure.THROTTLED]
    world.fail = lambda asked: failures.pop(0) if failures and isinstance(asked, HaltPool) else None
    talk.begin().run(25)
    talk.lose_sight("Pod", "one", "d")
    talk.lose_sight("Pod", "three", "d")
    talk.see(pod("four", "b", ready=False, uid="four"))
    talk.run(150)
    talk.see(pod("four", "b", uid="four"))
    talk.run(20)
    talk.see(pod("five", "b", "db", kind="StatefulSet"))
    talk.note(Node, "b", **{"test.dovetail.dev/want": "delete"})
    talk.run(60)
    return talk.lines


@scenario
def waste_grows_from_round_to_round() -> list[str]:
    """At the lesser of two rates, not for a time that nobody saw; gone where a node could not go."""
    talk = Talk(CALM)
    world = stage(talk, a="", b="")
    steps: tuple[dict[str, int | None], ...] = ({"a": 3600, "b": 7200}, {"a": 1800}, {"a": 3600, "b": None}, {})
    for number, saves in enumerate(steps):
        talk.planner.could_save = saves
        if number == 0:
            talk.begin()
        world.add_node(f"n{number}")
        talk.flush()
        talk.run(100)
    talk.lose_sight("Node", "a")
    talk.run(20)
    return [line for line in talk.lines if " round" in line]


@scenario
def steering_marks_are_moved_and_taken_back() -> list[str]:
    """Within the rate, at most once a minute for a ReplicaSet, a node is closing for three minutes at least."""
    talk = Talk(replace(CALM, steering=SteeringMode.PREFER, steering_writes_per_minute=3))
    world = stage(talk, a="", b="", c="")
    for name in ("x", "y", "z"):
        world.put(pod(f"other-{name}", "b", f"of-{name}"))
    victim = Victim(owner="rs", namespace="d", name="on-a", uid="on-a")
    others = tuple(Victim(owner=f"of-{n}", namespace="d", name=f"other-{n}", uid=f"other-{n}") for n in "xyz")
    talk.planner.plan = SteeringPlan(closing=("a",), victims=(victim, *others))
    talk.begin().run(90)
    talk.planner.plan = SteeringPlan(
        closing=("b",), victims=(Victim(owner="rs", namespace="d", name="on-b", uid="on-b"), others[0])
    )
    world.add_node("n1")
    talk.flush()
    talk.run(150)
    failures = [Failure.FORBIDDEN]
    world.fail = lambda asked: failures.pop(0) if failures and asked.id.startswith("steer/pod") else None
    talk.planner.plan = SteeringPlan(victims=others)
    world.add_node("n2")
    talk.flush()
    talk.run(700)
    talk.send(SettingsChanged(settings=CALM))
    talk.run(200)
    return talk.lines


@scenario
def time_alone_changes_the_answer() -> list[str]:
    """A round that names a time is asked again at that time, though nothing has changed; not a poll before."""
    talk = Talk(CALM)
    stage(talk, a="")
    talk.planner.next_change = T0 + timedelta(seconds=40)
    talk.begin().run(35)
    talk.planner.next_change = T0 + timedelta(seconds=75)
    talk.run(25)
    talk.planner.next_change = None
    talk.run(60)
    return talk.lines


@scenario
def what_is_announced() -> list[str]:
    """Verdicts at most once a minute, budgets, blocked moves and warnings when they change."""
    talk = Talk(CALM)
    world = stage(talk, a="", b="")
    planner = talk.planner
    row = BudgetRow(node_pool="web", reason=Reason.DRIFTED, allowed=2, used=1, left=1)
    move = BlockedMove(nodes=("a",), node_pools=("web",), savings=1, required=2, why="It saves too little.")
    batch = BlockedMove(nodes=("a", "b"), node_pools=("web",), savings=1, required=2, why="Together too.")
    planner.budgets, planner.blocked, planner.warnings = (row,), (batch, move), ("Look at this.",)
    talk.begin().run(35)
    planner.budgets = (replace(row, used=2, left=0),)
    planner.warnings = ("Look at this.", "And at that.")
    world.add_node("c")
    talk.flush()
    talk.run(80)
    planner.blocked, planner.warnings = (), ()
    talk.lose_sight("Node", "c")
    talk.lose_sight("NodeClaim", "c-claim")
    talk.run(40)
    return talk.lines


@pytest.mark.parametrize("name", SCENARIOS)
def test_conversation(name: str) -> None:
    """Word for word as it is written down."""
    known = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    for number, (said, written) in enumerate(zip_longest(SCENARIOS[name](), known), 1):
        if said != written:
            pytest.fail(f"{name}.txt, line {number}: {said!r} instead of {written!r}")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for title, act in SCENARIOS.items():
        (FOLDER / f"{title}.txt").write_text("\n".join(act()) + "\n", encoding="utf-8")
