"""One report of each type, for tests that must leave none out."""

from typing import get_args

from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.lifecycle.reports import (
    BudgetChanged,
    CommandAdvanced,
    CommandDropped,
    CommandFound,
    CommandOutcome,
    CommandProposed,
    CostActionUndone,
    DrainHangs,
    ExpiryChanged,
    InstructionNotDone,
    LeadershipChanged,
    MovesBlocked,
    NeighbourNoticed,
    NodesBackOff,
    PoolBacksOff,
    RecordIgnored,
    Report,
    Right,
    RightChanged,
    RoundEnded,
    VerdictsChanged,
    ViewIsOld,
    Warned,
)
from dovetail.model.command import Action, Method
from dovetail.model.policies.policy import Reason


def every_report(text: str) -> list[Report]:
    """Return each report of the engine, with the text wherever a cluster's text may stand."""
    steps = [
        CommandAdvanced(
            command_id=text,
            phase=phase,
            source=Phase.VALIDATING,
            signal=Signal.VALIDATED,
            action=Action.DELETE_COST,
            method=Method.SINGLE_NODE,
            nodes=(text, text),
            replacements=(text,),
            pools=(text,),
            savings=0.5,
            why=text,
        )
        for phase in Phase
    ]
    found: list[Report] = [
        *steps,
        CommandFound(command_id=text, action=Action.DELETE_COST),
        InstructionNotDone(command_id=text, id=text, failure=text, detail=text),
        PoolBacksOff(command_id=text, pool=text, what=text, failures=1, seconds=1, why=text),
        NodesBackOff(command_id=text, nodes=(text, text), seconds=1, why=text),
        DrainHangs(command_id=text, node=text, pool=text, seconds=300, pod=text, pdb=text, why=text),
        CostActionUndone(pool=text, failures=1, seconds=1),
        CommandOutcome(
            command_id=text,
            action=Action.DELETE_COST,
            pools=(text,),
            promised=0.5,
            saved=0.25,
            reopened=1,
            pods=3,
            moved_again=1,
        ),
        CommandProposed(action=Action.DELETE_COST, nodes=(text,)),
        CommandDropped(action=Action.DELETE_COST, nodes=(text,)),
        RoundEnded(commands=1, rounds=1, skipped=0),
        VerdictsChanged(pool=text, counts=(("pdb", 3),)),
        ExpiryChanged(pool=text, within_day=1, within_week=2, late=1, why=text),
        BudgetChanged(pool=text, reason=Reason.EMPTY, allowed=1, used=1, left=0),
        MovesBlocked(pool=text, moves=1, nodes=(text,), why=text),
        Warned(message=text),
        RecordIgnored(kind="Node", name=text, why=text),
        LeadershipChanged(leads=True),
        NeighbourNoticed(pool=text, neighbour=text, node=text, what=text),
        RightChanged(right=Right.STEERING, given=False),
        ViewIsOld(kinds=(text,)),
    ]
    assert {type(report) for report in found} == set(get_args(Report))
    return found
