"""Hundreds of short runs with faults: no promise is broken, and a seed alone repeats a run.

`make test` runs 60 seeds, CI 300, `make test-long` 2,000.
"""

import signal
import subprocess
import sys
from functools import cache

import pytest

from dovetail.sim.checks.promises import Violation
from dovetail.sim.checks.swarm import NEWER_FROM, Outcome, SeedTally, main, parse_seeds, run_seed, run_seeds
from tests.support.sizes import size

RUNS = size(test=60, ci=300, long=2000)
PIECE = 20


@cache
def outcomes(first: int) -> tuple[Outcome, ...]:
    """Return the outcomes of one part; tests of the first part run on one worker and share them."""
    return tuple(run_seeds(range(first, first + PIECE), workers=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [pytest.param(n, marks=pytest.mark.xdist_group(f"swarm-{n}")) for n in range(0, RUNS, PIECE)]
)
def test_no_promise_is_broken(first: int) -> None:
    """All promises hold at the end, whatever is lost, late, refused, killed or changed on the way."""
    broken = [
        f"{violation.rule} at {violation.at} s: {violation.what}; repeat it: {outcome.repeat}"
        for outcome in outcomes(first)
        for violation in outcome.violations[:1]
    ]
    assert broken == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(NEWER_FROM, NEWER_FROM + size(test=3, ci=10, long=300)))
def test_no_promise_is_broken_with_one_price_and_evictions_side_by_side(seed: int) -> None:
    """Budgets, PDBs and all else hold with the newer rules too."""
    assert run_seed(seed).violations == ()


@pytest.mark.xdist_group("swarm-0")
def test_seeds_do_something() -> None:
    """Most runs execute commands, and many crash."""
    assert sum(outcome.commands > 0 for outcome in outcomes(0)) >= 10
    assert sum(outcome.crashes > 0 for outcome in outcomes(0)) >= 5


def test_seed_repeats_its_run() -> None:
    """The same seed returns the same outcome, including every event."""
    assert run_seed(11) == run_seed(11)


@pytest.mark.parametrize("seed", [100180, 100439, 100670, 101110, 101202, 101612, 101685])
def test_seeds_that_were_blamed_wrongly(seed: int) -> None:
    """Spread that follows pods on existing nodes may need a node more; a machine that dies may finish a zone.

    And an engine whose wall clock was set back times the events that it has seen by its own clock. Nodes that began to
    leave after a command was decided need room, a machine may die while its Deployment rolls, and a node that is to be
    repaired may recover a moment before.
    """
    assert run_seed(seed).violations == ()


@pytest.mark.parametrize("seed", [101583, 101956])
def test_seeds_that_broke_a_promise(seed: int) -> None:
    """A taint that failed for 75 s was put on by an old decision; a node that Karpenter ended took a zone's turn."""
    assert run_seed(seed).violations == ()


def test_failing_seed_prints_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If a promise is broken, the swarm prints how to repeat the run."""
    monkeypatch.setattr("dovetail.sim.checks.swarm.LONGEST", 0)
    assert main(["--seeds", "5", "--workers", "1"]) == 1
    said = capsys.readouterr().out
    assert "seed 5 at" in said
    assert "repeat it: python -m dovetail.sim.checks.swarm --seeds 5" in said


def _outcome(seed: int, *broken: str) -> Outcome:
    violations = tuple(Violation(rule=rule, what="it broke", at=7) for rule in broken)
    return Outcome(seed=seed, violations=violations, commands=2, crashes=1, events=9, what="")


def test_progress_is_printed_after_two_seconds_and_then_every_quarter_of_a_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Standard error says how many seeds are done, how many broke a promise, and the time left."""
    now = 100.0
    tally = SeedTally(40, lambda: now)
    for seed in range(39):
        now += 1.0
        tally.add(_outcome(seed, *(["budgets"] if seed == 3 else [])))
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "2 of 40 seeds, 0 broke a promise, about 38s left",
        "17 of 40 seeds, 1 broke a promise, about 23s left",
        "32 of 40 seeds, 1 broke a promise, about 8s left",
    ]
    assert "seed 3 at 7 s: budgets: it broke" in said.out
    assert tally.sums() == "stopped after 39 of 40 seeds, 78 commands, 39 crashes, 1 seeds broke a promise\n"


def test_a_broken_promise_is_printed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A violation does not wait for the seeds before or after it."""
    tally = SeedTally(1000)
    tally.add(_outcome(17, "budgets"))
    assert capsys.readouterr().out.splitlines() == [
        "seed 17 at 7 s: budgets: it broke",
        "  repeat it: python -m dovetail.sim.checks.swarm --seeds 17",
    ]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_prints_what_there_is(workers: str) -> None:
    """Ctrl-C ends the swarm with the sums so far and status 130, and without a traceback."""
    swarm = subprocess.Popen(
        [sys.executable, "-c", _BY_CTRL_C, "--seeds", "0-99999", "--workers", workers],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert swarm.stderr is not None
    assert "of 100000 seeds, 0 broke a promise, about " in swarm.stderr.readline()
    swarm.send_signal(signal.SIGINT)
    out, err = swarm.communicate(timeout=60)
    assert swarm.returncode == 130, err
    assert out.startswith("stopped after ")
    assert "Traceback" not in err


_BY_CTRL_C = """
import signal, sys
from dovetail.sim.checks import swarm
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the suite runs in a shell's background
    sys.exit(swarm.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("text", "seeds"), [("7", range(7, 8)), ("0-99", range(100))])
def test_seeds_are_a_number_or_a_range(text: str, seeds: range) -> None:
    """Seeds can be written as `7` and `0-99`."""
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "1-", "-3", "1-x"])
def test_seeds_that_are_neither_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An invalid range of seeds is wrong usage and fails with one sentence."""
    with pytest.raises(SystemExit) as leaving:
        main([f"--seeds={text}"])
    assert leaving.value.code == 2
    assert "write 7 or 0-99" in capsys.readouterr().err
