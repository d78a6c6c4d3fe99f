"""Scenes of commands that succeed, give way or are refused, and of pools that recover."""

from dataclasses import replace

import msgspec

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.messages import (
    CreateNodeClaim,
    Failure,
    TaintNode,
)
from dovetail.model.objects import NodeClaim
from tests.lifecycle.scenes.stage import LAUNCHED, PAUSES, QUICK, RATE, catalogue, provisioned, scenario, stage
from tests.support.conversation import (
    WITH,
    Talk,
    pod,
    pool,
)
from tests.support.lifecycle_world import CALM


@scenario
def delete_that_goes_well() -> list[str]:
    """Delete a drifted node; its pods move as planned."""
    talk = Talk()
    world = stage(talk, rest="")
    world.add_node("a", want="delete", to="rest")
    return talk.begin().run(90).lines  # type: ignore[attr-defined, no-any-return]


@scenario
def replace_that_goes_well() -> list[str]:
    """Launch two nodes first; they stay nominated until their pods arrive, for at most a minute."""
    talk = Talk()
    world = stage(talk, a="replace2", rest="")
    talk.begin().run(90)
    first = world.created[0]
    talk.see(pod("moved", f"{first}-node"), pod("daemon", f"{world.created[1]}-node", "ds", kind="DaemonSet"))
    talk.run(90)
    return talk.lines


@scenario
def replacements_under_way() -> list[str]:
    """Show what rounds know of a command's pods and new nodes, before and after each machine is known."""
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
    """Validate each command without those found after it; one is refused and gives way to the others."""
    talk = Talk()
    stage(talk, a="delete", b="replace", c="delete")
    talk.planner.all_at_once = True
    talk.planner.refuse = lambda command: "not now" if command.nodes == ("a",) and talk.planner.validations < 8 else ""
    talk.begin().run(120)
    return talk.lines


@scenario
def refused_again_and_again() -> list[str]:
    """Refuse the same command twice in a row; it waits for the next poll."""
    talk = Talk()
    stage(talk, a="delete")
    talk.planner.refuse = lambda command: "never"
    talk.begin().run(100)
    return talk.lines


@scenario
def refused_commands_give_way() -> list[str]:
    """Refuse a command; it does not start again while the commands that were in validation then still are."""
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
    """Record each pool's start with its own nodes; both pools pause and wait."""
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
    """Hold a command because the last cost action in one of its two pools did not hold."""
    talk = Talk(CALM, catalogue=catalogue())
    world = stage(talk, a="cost-delete", rest="")
    world.put(pool("two"))
    talk.begin().run(25)
    talk.lose_sight("Pod", "on-a", "d")
    talk.see(provisioned("back", "back", **LAUNCHED), pod("new-a", "back"))
    talk.run(10)
    world.add_node("b", pool="two", want="cost-delete", **{WITH: "rest"})
    talk.flush()
    talk.run(30)
    return talk.lines


@scenario
def pools_that_recover() -> list[str]:
    """Finish a command; this ends the row of failures, so the next backoff is the shortest again."""
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
    """Remove a command's nodes before, while and after it taints them."""
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
