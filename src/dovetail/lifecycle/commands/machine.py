"""The life of one command as a table: (phase, signal) -> (phase, steps).

See docs/rules.md#carrying-out; lifecycle-controller, LifecycleAction Tunables.

Rules of this file: a phase is a state of a command; a signal is a fact, never a wish; a step is a kind of instruction
that the new phase repeats until it is seen to be done. What is not in the table does not happen: a signal without an
entry is not checked. The table knows no objects, no time and no instruction; `signals` finds the signals and `steps`
builds the instructions. docs/internals/command-machine.md is drawn from it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """The state of a command."""

    VALIDATING = "validating"
    FOUND = "found"
    NOTING = "noting"
    TAINTING = "tainting"
    LAUNCHING = "launching"
    WAITING = "waiting"
    SURGING = "surging"
    CHECKING = "checking"
    EVICTING = "evicting"
    DELETING = "deleting"
    DRAINING = "draining"
    FINISHING = "finishing"
    ROLLING_BACK = "rolling-back"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"


BEGINNING: Final = (Phase.NOTING, Phase.TAINTING)
"""The phases in which a command has done nothing yet that costs more than to take a mark off again."""


class Signal(StrEnum):
    """A fact that advances a command."""

    VALIDATED_TO_NOTE = "validated, the pools have to say first that it starts"
    VALIDATED = "validated"
    NOTED = "the start is noted"
    VALIDATION_REFUSED = "validation refused"
    CANDIDATES_GONE = "all candidates gone"
    TAINTED = "all tainted"
    TAINTED_TO_SURGE = "all tainted, nothing to launch, Deployments to be rolled"
    TAINTED_NOTHING_TO_LAUNCH = "all tainted, nothing to launch"
    LAUNCHED = "all replacements created"
    INITIALIZED_TO_SURGE = "all replacements initialized, Deployments to be rolled"
    SURGED = "rolled Deployments have left the nodes"
    INITIALIZED = "all replacements initialized"
    MAY_EVICT = "the last look refuses nothing, pods to be evicted in order"
    MAY_DELETE = "the last look refuses nothing"
    STILL_REFUSED = "the last look refuses for too long"
    LOOK_IS_OLD = "the last look is too old"
    EVICTED = "evictions in order are over"
    REPLACEMENT_VANISHED = "a replacement vanished"
    LAUNCH_FAILED = "a replacement can't be launched"
    TIMED_OUT = "time-out"
    INSTRUCTION_REFUSED = "an instruction was refused"
    HANDS_OFF = "no longer managed"
    DELETED = "all deletions begun"
    DRAINED = "all candidates gone for good"
    CLEARED = "all records cleared"
    ROLLED_BACK = "all undone"
    FOUND_COMPLETE = "found with taints and replacements"
    FOUND_LEAVING = "found with every candidate leaving"
    FOUND_BROKEN = "found with parts missing"


class Step(StrEnum):
    """A kind of instruction that a phase repeats until it is done."""

    NOTE = "note the start on the pools"
    BEGIN = "write on the pools which domain begins"
    TAINT = "taint candidates"
    CREATE = "create replacements"
    SURGE = "roll Deployments"
    LOOK = "read pods and PDBs once more"
    EVICT = "evict the next pod"
    DELETE = "delete candidates"
    ATTRIBUTE = "say why candidates leave"
    CLEAR = "clear records"
    UNTAINT = "untaint candidates"
    DELETE_REPLACEMENTS = "delete replacements"
    FORGET = "take the start off the pools"


@dataclass(frozen=True, slots=True)
class Transition:
    """The next phase and its steps."""

    phase: Phase
    steps: tuple[Step, ...] = ()


_ROLL_BACK: Final = Transition(Phase.ROLLING_BACK, (Step.UNTAINT, Step.DELETE_REPLACEMENTS, Step.FORGET))
_TAINT: Final = Transition(Phase.TAINTING, (Step.TAINT,))
_SURGE: Final = Transition(Phase.SURGING, (Step.SURGE,))
_CHECK: Final = Transition(Phase.CHECKING, (Step.LOOK,))
_EVICT: Final = Transition(Phase.EVICTING, (Step.EVICT,))
_DELETE: Final = Transition(Phase.DELETING, (Step.DELETE, Step.ATTRIBUTE))
_DRAIN: Final = Transition(Phase.DRAINING, (Step.DELETE, Step.ATTRIBUTE))
_FINISH: Final = Transition(Phase.FINISHING, (Step.CLEAR, Step.UNTAINT))

TRANSITIONS: Final[dict[tuple[Phase, Signal], Transition]] = {
    (Phase.VALIDATING, Signal.CANDIDATES_GONE): Transition(Phase.REFUSED),
    (Phase.VALIDATING, Signal.VALIDATION_REFUSED): Transition(Phase.REFUSED),
    (Phase.VALIDATING, Signal.VALIDATED_TO_NOTE): Transition(Phase.NOTING, (Step.NOTE, Step.BEGIN)),
    (Phase.VALIDATING, Signal.VALIDATED): _TAINT,
    (Phase.NOTING, Signal.CANDIDATES_GONE): _ROLL_BACK,
    (Phase.NOTING, Signal.HANDS_OFF): _ROLL_BACK,
    (Phase.NOTING, Signal.INSTRUCTION_REFUSED): _ROLL_BACK,
    (Phase.NOTING, Signal.TIMED_OUT): _ROLL_BACK,
    (Phase.NOTING, Signal.NOTED): _TAINT,
    (Phase.FOUND, Signal.FOUND_LEAVING): _DRAIN,
    (Phase.FOUND, Signal.FOUND_COMPLETE): Transition(Phase.WAITING),
    (Phase.FOUND, Signal.FOUND_BROKEN): _ROLL_BACK,
    (Phase.TAINTING, Signal.CANDIDATES_GONE): _FINISH,
    (Phase.TAINTING, Signal.HANDS_OFF): _ROLL_BACK,
    (Phase.TAINTING, Signal.INSTRUCTION_REFUSED): _ROLL_BACK,
    (Phase.TAINTING, Signal.TIMED_OUT): _ROLL_BACK,
    (Phase.TAINTING, Signal.TAINTED): Transition(Phase.LAUNCHING, (Step.CREATE,)),
    (Phase.TAINTING, Signal.TAINTED_TO_SURGE): _SURGE,
    (Phase.TAINTING, Signal.TAINTED_NOTHING_TO_LAUNCH): _CHECK,
    (Phase.LAUNCHING, Signal.HANDS_OFF): _ROLL_BACK,
    (Phase.LAUNCHING, Signal.INSTRUCTION_REFUSED): _ROLL_BACK,
    (Phase.LAUNCHING, Signal.REPLACEMENT_VANISHED): _ROLL_BACK,
    (Phase.LAUNCHING, Signal.LAUNCH_FAILED): _ROLL_BACK,
    (Phase.LAUNCHING, Signal.TIMED_OUT): _ROLL_BACK,
    (Phase.LAUNCHING, Signal.LAUNCHED): Transition(Phase.WAITING),
    (Phase.WAITING, Signal.HANDS_OFF): _ROLL_BACK,
    (Phase.WAITING, Signal.REPLACEMENT_VANISHED): _ROLL_BACK,
    (Phase.WAITING, Signal.INITIALIZED_TO_SURGE): _SURGE,
    (Phase.WAITING, Signal.INITIALIZED): _CHECK,
    (Phase.WAITING, Signal.LAUNCH_FAILED): _ROLL_BACK,
    (Phase.WAITING, Signal.TIMED_OUT): _ROLL_BACK,
    (Phase.SURGING, Signal.HANDS_OFF): _ROLL_BACK,
    (Phase.SURGING, Signal.INSTRUCTION_REFUSED): _ROLL_BACK,
    (Phase.SURGING, Signal.SURGED): _CHECK,
    (Phase.SURGING, Signal.TIMED_OUT): _ROLL_BACK,
    (Phase.CHECKING, Signal.HANDS_OFF): _ROLL_BACK,
    (Phase.CHECKING, Signal.REPLACEMENT_VANISHED): _ROLL_BACK,
    (Phase.CHECKING, Signal.INSTRUCTION_REFUSED): _ROLL_BACK,
    (Phase.CHECKING, Signal.MAY_EVICT): _EVICT,
    (Phase.CHECKING, Signal.MAY_DELETE): _DELETE,
    (Phase.CHECKING, Signal.STILL_REFUSED): _ROLL_BACK,
    (Phase.EVICTING, Signal.HANDS_OFF): _ROLL_BACK,
    (Phase.EVICTING, Signal.EVICTED): _DELETE,
    (Phase.DELETING, Signal.INSTRUCTION_REFUSED): _ROLL_BACK,
    (Phase.DELETING, Signal.DELETED): _DRAIN,
    (Phase.DELETING, Signal.LOOK_IS_OLD): _CHECK,
    (Phase.DRAINING, Signal.DRAINED): _FINISH,
    (Phase.FINISHING, Signal.CLEARED): Transition(Phase.DONE),
    (Phase.ROLLING_BACK, Signal.ROLLED_BACK): Transition(Phase.FAILED),
}
"""Of several signals that hold at once in a phase, the first listed here is taken."""

TERMINAL: Final = (Phase.DONE, Phase.FAILED, Phase.REFUSED)
INITIAL: Final = (Phase.VALIDATING, Phase.FOUND)

STEPS: Final[dict[Phase, tuple[Step, ...]]] = {entry.phase: entry.steps for entry in TRANSITIONS.values()}
SIGNALS: Final[dict[Phase, tuple[Signal, ...]]] = {
    phase: tuple(signal for (source, signal) in TRANSITIONS if source is phase) for phase in Phase
}


def page() -> str:
    """Write docs/internals/command-machine.md."""
    head = (
        "# The command machine\n\n"
        "Generated from `dovetail.lifecycle.commands.machine.TRANSITIONS` by\n"
        "`python -m dovetail.lifecycle.commands.machine > docs/internals/command-machine.md`; a test checks it.\n"
        "The last table lists what a phase asks for until it is done. If several signals hold at once, the\n"
        "order of `TRANSITIONS` decides. A successor begins at *found*, from the objects' records.\n\n"
    )
    signals: dict[tuple[Phase, Phase], list[str]] = {}
    for (source, signal), target in TRANSITIONS.items():
        signals.setdefault((source, target.phase), []).append(signal.value)
    rows = ["| phase | signal | next |", "|---|---|---|"]
    rows += [f"| {one.value} | {'; '.join(names)} | {other.value} |" for (one, other), names in signals.items()]
    rows += ["", "| phase | asks for |", "|---|---|"]
    rows += [f"| {phase.value} | {', '.join(steps)} |" for phase, steps in STEPS.items() if steps]
    return head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
