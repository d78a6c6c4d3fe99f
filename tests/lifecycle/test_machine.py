from dovetail.lifecycle.commands.machine import (
    INITIAL,
    SIGNALS,
    STEPS,
    TERMINAL,
    TRANSITIONS,
    Phase,
    Signal,
    Step,
    page,
)
from tests.paths import ROOT


def test_every_phase_is_reached_and_left() -> None:
    """Each phase is initial or entered from another, and left unless it is an end."""
    entered = {entry.phase for entry in TRANSITIONS.values()} | set(INITIAL)
    left = {source for source, _ in TRANSITIONS}
    assert entered == set(Phase)
    assert left == set(Phase) - set(TERMINAL)


def test_every_end_is_reachable_from_every_phase() -> None:
    """A command can end from any phase."""
    reach = {phase: {phase} for phase in Phase}
    for _ in Phase:
        for (source, _), entry in TRANSITIONS.items():
            reach[source] |= reach[entry.phase]
    assert all(reach[phase] & set(TERMINAL) for phase in Phase)


def test_a_phase_asks_for_the_same_however_it_was_entered() -> None:
    """Steps depend on the phase and not on the way into it, so a successor runs the same steps."""
    for entry in TRANSITIONS.values():
        assert STEPS[entry.phase] == entry.steps


def test_every_signal_and_step_is_used() -> None:
    """Every signal and every step is used."""
    assert {signal for _, signal in TRANSITIONS} == set(Signal)
    assert {step for steps in STEPS.values() for step in steps} == set(Step)
    assert SIGNALS[Phase.DONE] == ()


def test_whatever_taints_or_launches_can_be_undone() -> None:
    """Every phase between the first taint and the first deletion can roll back."""
    for phase in (Phase.TAINTING, Phase.LAUNCHING, Phase.WAITING, Phase.DELETING, Phase.FOUND):
        assert any(entry.phase is Phase.ROLLING_BACK for (source, _), entry in TRANSITIONS.items() if source is phase)


def test_page_is_current() -> None:
    """The page docs/internals/command-machine.md is current."""
    assert (ROOT / "docs" / "internals" / "command-machine.md").read_text(encoding="utf-8") == page()
