"""The simulator is held against a recording of the real Karpenter."""

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.model.settings import DOVETAIL
from dovetail.sim.recording import agreement, course, load_kwok_types, load_recording, main, replay
from dovetail.sim.scenario import ScenarioError
from tests.paths import SHARED, needs_shared

RECORDING = SHARED / "recordings" / "off-peak" / "recording.json.gz"
TYPES = SHARED / "tools" / "types.json"
SEEDS = range(20)


@needs_shared
@pytest.mark.slow
def test_karpenters_course_is_met() -> None:
    """The mean course stays near the recorded one: nodes, commands, pods moved, kinds of action, short lives.

    One recording is one throw of the dice (Karpenter's ties, the scheduler's, the order of evictions, the place of the
    polls), and single runs scatter around it. So the mean of twenty runs is compared, not rounded: nodes within 15 % at
    every minute from the tenth on. From the sixth to the ninth only 20 % is met, less than is wanted: too many early
    commands delete rather than replace, and why is not known (docs/simulator.md). All else within 25 %.
    """
    recording, catalogue = load_recording(RECORDING), load_kwok_types(TYPES)
    results = [replay(recording, catalogue, seed=seed) for seed in SEEDS]
    found = course([agreement(recording, result, after_minutes=6) for result in results])
    for minute, (there, here, _, _) in zip(found.minutes, found.nodes, strict=True):
        assert abs(here - there) <= (0.15 if minute >= 10 else 0.2) * there + 1e-9, f"minute {minute}"
    figures = {what: (there, here) for what, there, here, _, _ in found.figures}
    for what in ("commands", "pods moved", "deletes", "replaces", "lives under 15 min"):
        there, here = figures[what]
        assert abs(here - there) <= 0.25 * there, what
    commands = [command for result in results for command in result.commands]
    alike = [entry for entry in commands if entry.action in ("deleteCost", "replaceCost") and len(entry.nodes) == 1]
    assert len(alike) > 0.9 * len(commands)  # all of the recorded ones are
    assert not any(result.violations for result in results)


@needs_shared
def test_first_nodes_are_karpenters() -> None:
    """With all pods in one batch the provisioner opens the very nodes that Karpenter opened first."""
    recording, catalogue = load_recording(RECORDING), load_kwok_types(TYPES)
    opened = [entry["type"] for entry in recording.claims if entry["seen"] < 12]
    start = replace(recording, pods=tuple(entry for entry in recording.pods if entry["t"] < 60))
    lives = replay(start, catalogue, seed=3).lives
    first = min(life.started for life in lives)
    assert sorted(life.type for life in lives if life.started < first + 1) == sorted(opened)


@needs_shared
def test_new_rules_would_have_kept_that_cluster_calm() -> None:
    """The grace period and the threshold on that very run: fewer moves, fewer pods moved again."""
    recording, catalogue = load_recording(RECORDING), load_kwok_types(TYPES)
    old = replay(recording, catalogue, seed=1)
    grace = replay(recording, catalogue, DOVETAIL, {"consolidationGracePeriod": "30m"}, seed=1, name="grace-period")
    threshold = replay(
        recording, catalogue, DOVETAIL, {"consolidationSavingsThreshold": 0.01}, seed=1, name="threshold"
    )
    assert grace.pods_disrupted * 4 < old.pods_disrupted
    assert threshold.pods_disrupted * 4 < old.pods_disrupted * 3
    assert threshold.pods_disrupted_more_than_once * 2 < old.pods_disrupted_more_than_once


@needs_shared
def test_command_prints_both_curves(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m dovetail.sim.recording` shows the recorded and the simulated nodes minute by minute."""
    assert main([str(RECORDING), "--types", str(TYPES), "--seeds", "2"]) == 0
    said = capsys.readouterr().out
    assert "recorded " in said
    assert "  most " in said
    assert "commands: recorded 23" in said
    assert "nodes, mean of 2 runs, differ by at most" in said


def test_file_that_is_no_recording_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, exit status 2."""
    file = tmp_path / "x.json"
    file.write_text("{}")
    with pytest.raises(ScenarioError, match="it is no recording"):
        load_recording(file)
    with pytest.raises(ScenarioError, match="can't be read"):
        load_recording(tmp_path / "none.json")
    assert main([str(file), "--types", str(file)]) == 2
    assert "no recording" in capsys.readouterr().err
