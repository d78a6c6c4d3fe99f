"""The life of one command as a table: (phase, signal) -> (phase, steps).

Spec section 9; lifecycle-controller, LifecycleAction Tunables.

Rules of this file: a phase is a state of a command; a signal is a fact, never a wish; a step is a kind of instruction
that the new phase repeats until it is seen to be done. What is not in the table does not happen: a signal without an
entry is not checked. The table knows no objects, no time and no instruction; `signals` finds the signals and `steps`
builds the instructions. docs/command-machine.md is drawn from it.
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
    EVICTING = "evicting"
    DELETING = "deleting"
    DRAINING = "draining"
    FINISHING = "finishing"
    ROLLING_BACK = "rolling-back"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"


class Signal(StrEnum):
    """A fact that advances a command."""

    VALIDATED_TO_NOTE = "validated, a rate budget wants the start noted"
    VALIDATED = "validated"
    NOTED = "the start is noted"
    VALIDATION_REFUSED = "validation refused"
    CANDIDATES_GONE = "all candidates gone"
    TAINTED = "all tainted"
    TAINTED_TO_SURGE = "all tainted, nothing to launch, Deployments to be rolled"
    TAINTED_TO_EVICT = "all tainted, nothing to launch, pods to be evicted in order"
    TAINTED_NOTHING_TO_LAUNCH = "all tainted, nothing to launch"
    LAUNCHED = "all replacements created"
    INITIALIZED_TO_SURGE = "all replacements initialized, Deployments to be rolled"
    SURGED_TO_EVICT = "rolled Deployments have left, pods to be evicted in order"
    SURGED = "rolled Deployments have left the nodes"
    INITIALIZED_TO_EVICT = "all replacements initialized, pods to be evicted in order"
    INITIALIZED = "all replacements initialized"
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
    TAINT = "taint candidates"
    CREATE = "create replacements"
    SURGE = "roll Deployments"
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
_EVICT: Final = Transition(Phase.EVICTING, (Step.EVICT,))
_DELETE: Final = Transition(Phase.DELETING, (Step.DELETE, Step.ATTRIBUTE))
_DRAIN: Final = Transition(Phase.DRAINING, (Step.DELETE, Step.ATTRIBUTE))
_FINISH: Final = Transition(Phase.FINISHING, (Step.CLEAR, Step.UNTAINT))

TRANSITIONS: Final[dict[tuple[Phase, Signal], Transition]] = {
    (Phase.VALIDATING, Signal.CANDIDATES_GONE): Transition(Phase.REFUSED),
    (Phase.VALIDATING, Signal.VALIDATION_REFUSED): Transition(Phase.REFUSED),
    (Phase.VALIDATING, Signal.VALIDATED_TO_NOTE): Transition(Phase.NOTING, (Step.NOTE,)),
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
    (Phase.TAINTING, Signal.TAINTED_TO_EVICT): _EVICT,
    (Phase.TAINTING, Signal.TAINTED_NOTHING_TO_LAUNCH): _DELETE,
    (Phase.LAUNCHING, Signal.HANDS_OFF): _ROLL_BACK,
    (Phase.LAUNCHING, Signal.INSTRUCTION_REFUSED): _ROLL_BACK,
    (Phase.LAUNCHING, Signal.REPLACEMENT_VANISHED): _ROLL_BACK,
    (Phase.LAUNCHING, Signal.LAUNCH_FAILED): _ROLL_BACK,
    (Phase.LAUNCHING, Signal.TIMED_OUT): _ROLL_BACK,
    (Phase.LAUNCHING, Signal.LAUNCHED): Transition(Phase.WAITING),
    (Phase.WAITING, Signal.HANDS_OFF): _ROLL_BACK,
    (Phase.WAITING, Signal.REPLACEMENT_VANISHED): _ROLL_BACK,
    (Phase.WAITING, Signal.INITIALIZED_TO_SURGE): _SURGE,
    (Phase.WAITING, Signal.INITIALIZED_TO_EVICT): _EVICT,
    (Phase.WAITING, Signal.INITIALIZED): _DELETE,
    (Phase.WAITING, Signal.LAUNCH_FAILED): _ROLL_BACK,
    (Phase.WAITING, Signal.TIMED_OUT): _ROLL_BACK,
    (Phase.SURGING, Signal.HANDS_OFF): _ROLL_BACK,
    (Phase.SURGING, Signal.INSTRUCTION_REFUSED): _ROLL_BACK,
    (Phase.SURGING, Signal.SURGED_TO_EVICT): _EVICT,
    (Phase.SURGING, Signal.SURGED): _DELETE,
    (Phase.SURGING, Signal.TIMED_OUT): _ROLL_BACK,
    (Phase.EVICTING, Signal.HANDS_OFF): _ROLL_BACK,
    (Phase.EVICTING, Signal.EVICTED): _DELETE,
    (Phase.DELETING, Signal.INSTRUCTION_REFUSED): _ROLL_BACK,
    (Phase.DELETING, Signal.DELETED): _DRAIN,
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


def diagram() -> str:
    """Draw the table as a mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{phase.value}" as {phase.name}' for phase in Phase]
    lines += [f"    [*] --> {phase.name}" for phase in INITIAL]
    for (source, signal), target in TRANSITIONS.items():
        doing = f" / {', '.join(step.value for step in target.steps)}" if target.steps else ""
        lines.append(f"    {source.name} --> {target.phase.name}: {signal.value}{doing}")
    lines += [f"    {phase.name} --> [*]" for phase in TERMINAL]
    return "\n".join(lines) + "\n"


def page() -> str:
    """Write docs/command-machine.md."""
    head = (
        "# The command machine\n\n"
        "Generated from `dovetail.lifecycle.commands.machine.TRANSITIONS` by\n"
        "`python -m dovetail.lifecycle.commands.machine > docs/command-machine.md`; a test keeps it current.\n"
        "An arrow reads `what was seen / what is then asked for until it is seen to be done`. If several\n"
        "signals hold at once, the first one listed is taken. A successor begins at *found*, from the\n"
        "objects' records.\n\n"
    )
    rows = ["| phase | signal | next | asks for |", "|---|---|---|---|"]
    for (source, signal), target in TRANSITIONS.items():
        steps = ", ".join(step.value for step in target.steps)
        rows.append(f"| {source.value} | {signal.value} | {target.phase.value} | {steps} |")
    return f"{head}```mermaid\n{diagram()}```\n\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
