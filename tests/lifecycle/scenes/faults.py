"""Scenes in which replacements, instructions, answers and processes fail."""

import json

import msgspec
import pytest

from dovetail.lifecycle.engine_state import EngineRole
from dovetail.lifecycle.messages import (
    ClearRecord,
    CreateNodeClaim,
    DeleteNodeClaim,
    EvictPod,
    Failure,
    ForgetDisruption,
    Instruction,
    NoteDisruption,
    SetDisruptionReason,
    SurgeDeployment,
    TaintNode,
    UntaintNode,
)
from dovetail.lifecycle.reports import Report
from dovetail.model import names
from dovetail.model.objects import Condition, Node, NodeClaim
from dovetail.scheduling.pods.surge import SURGE
from tests.lifecycle.scenes.stage import (
    DOLLAR,
    HANDS_OFF,
    IN_ORDER,
    QUICK,
    RATE,
    scenario,
    stage,
)
from tests.support.conversation import (
    PODS,
    SAVES,
    Talk,
    deployment,
    pod,
    pool,
    replica_set,
)
from tests.support.lifecycle_world import Crash


@scenario
def replacements_that_never_come() -> list[str]:
    """Roll back at the timeout; the pool backs off twice as long each time."""
    talk = Talk(QUICK)
    world = stage(talk, a="replace", b="delete")
    world.launches = False
    talk.begin().run(900)
    return talk.lines


@scenario
def one_of_two_replacements_never_comes() -> list[str]:
    """Delete both replacements; only the pool of the late one backs off."""
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
    """Remove a replacement, seen or unseen; the engine does not wait for it."""
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
    """Delete a replacement from outside; it counts as gone at once."""
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
    """Fail a launch: most reasons count at once, a launch in progress counts after the launch timeout."""
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
    """Mark a Node or its claim, or release its pool; the engine rolls back what it can."""
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
    """Put another command's record on a candidate; this command ends and leaves the other's taint."""
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
    """Return a conversation in one line: the instructions with their times, and the end."""
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
    """Run every step: note, taint, launch, surge, evict, delete, drain, clear."""
    talk = _with_everything()
    talk.begin().run(150)
    return talk.lines


@scenario
def every_instruction_fails_in_every_way() -> list[str]:
    """Fail each instruction once, for two minutes or forever; show retries, rollbacks and leftovers."""
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
    """Lose each answer; the engine repeats the step and the command still ends."""
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
    """Crash after each instruction; a successor finishes or rolls back the command."""
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
