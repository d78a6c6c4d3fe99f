"""Scenes of pauses, landings, regrowth, outcomes, aftercare, waste, steering and announcements."""

from dataclasses import replace
from datetime import timedelta

import msgspec

from dovetail.decide.outcome import BlockedMove, BudgetRow, SteeringPlan, Victim
from dovetail.decide.refusal import Refusal
from dovetail.lifecycle.messages import (
    Failure,
    HaltPool,
    SettingsChanged,
)
from dovetail.model.objects import Node
from dovetail.model.policies.reasons import Reason
from dovetail.model.settings import SteeringMode
from dovetail.model.verdicts import Gate
from tests.lifecycle.scenes.stage import (
    DOLLAR,
    LANDS,
    LAUNCHED,
    PAUSES,
    WITHIN,
    catalogue,
    provisioned,
    scenario,
    stage,
)
from tests.support.conversation import (
    ACTION,
    METHOD,
    PODS,
    SAVES,
    Talk,
    pod,
    pool,
    replica_set,
    stateful_set,
)
from tests.support.lifecycle_world import CALM, T0


@scenario
def cost_actions_pause() -> list[str]:
    """Pause after each kind of action for its own time; refuse a cost command in validation meanwhile."""
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
    """End the pause after all pods have landed: at least half a minute, at most the window."""
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


@scenario
def a_node_comes_back_for_moved_pods() -> list[str]:
    """Hold the pool's cost actions twice as long each time; other methods go on."""
    lines = []
    for settings in (CALM, replace(LANDS, stabilization=CALM.stabilization)):
        for price in (True, False):
            talk = Talk(settings, catalogue=catalogue())
            world = stage(talk, a="cost-delete", b="cost-delete", c="", d="delete")
            for name, saves in (("a", DOLLAR), ("b", DOLLAR // 20)):
                node = world.get(Node, name)
                assert node is not None
                world.annotate(node, **{SAVES: str(saves)})
            talk.begin().run(25)
            talk.see(provisioned("back", "", **(LAUNCHED if price else {})))
            talk.lose_sight("Pod", "on-a", "d")
            talk.see(pod("new-a"))
            talk.run(20)
            talk.see(provisioned("back", "back", **(LAUNCHED if price else {})))
            talk.see(pod("new-a", "back"))
            talk.run(2000)
            lines += [f"{settings.stabilization_ends} {price}", *talk.without_wakes()]
    return lines


@scenario
def what_came_of_commands() -> list[str]:
    """Report after an hour: the savings, the nodes that were opened again, the pods that moved again."""
    talk = Talk(CALM, catalogue=catalogue())
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
    talk.see(provisioned("one", "one", **LAUNCHED))
    talk.see(provisioned("two", ""))
    talk.run(300)
    talk.see(provisioned("two", "two", **LAUNCHED))
    talk.see(provisioned("three", ""))
    talk.lose_sight("NodeClaim", "three")
    talk.see(provisioned("three", "", **LAUNCHED))
    talk.note(Node, "b", **{"test.dovetail.dev/want": "cost-delete", SAVES: str(DOLLAR), PODS: "1"})
    talk.run(3700)
    return [line for line in talk.lines if " wake " not in line and "round" not in line]


@scenario
def moved_pods_that_do_not_become_ready() -> list[str]:
    """Hold the pool for its pods, halt it if they stay away, and resume when they are back."""
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
    """Add waste at the lower of two rates, skip unobserved time, and reset a node that cannot go."""
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
    """Write marks within the rate, once a minute per ReplicaSet; keep a node closing for three minutes."""
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
    """Run the next round at the time that a round named, although nothing has changed."""
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
    """Publish verdicts once a minute; publish budgets, blocked moves and warnings when they change."""
    talk = Talk(CALM)
    world = stage(talk, a="", b="")
    planner = talk.planner
    domains = {"allowed_with_domains": 2, "left_with_domains": 1}
    row = BudgetRow(node_pool="web", reason=Reason.DRIFTED, allowed=2, used=1, left=1, **domains)
    alone, together = (
        Refusal(gate=Gate.SAVINGS_THRESHOLD, why=why, savings=1) for why in ("It saves too little.", "Together too.")
    )
    move = BlockedMove(nodes=("a",), node_pools=("web",), refusal=alone)
    batch = BlockedMove(nodes=("a", "b"), node_pools=("web",), refusal=together)
    planner.budgets, planner.blocked, planner.warnings = (row,), (batch, move), ("Look at this.",)
    talk.begin().run(35)
    planner.budgets = (msgspec.structs.replace(row, used=2, left=0),)
    planner.warnings = ("Look at this.", "And at that.")
    world.add_node("c")
    talk.flush()
    talk.run(80)
    planner.blocked, planner.warnings = (), ()
    talk.lose_sight("Node", "c")
    talk.lose_sight("NodeClaim", "c-claim")
    talk.run(40)
    return talk.lines
