"""The simulator is held against a recording of the real Karpenter."""

from pathlib import Path
from statistics import mean

import pytest

from dovetail.model.settings import DOVETAIL
from dovetail.sim.recording import agreement, load_kwok_types, load_recording, main, replay
from dovetail.sim.scenario import ScenarioError
from tests.paths import SHARED, needs_shared

RECORDING = SHARED / "recordings" / "off-peak" / "recording.json.gz"
TYPES = SHARED / "tools" / "types.json"
SEEDS = range(6)


@needs_shared
@pytest.mark.slow
def test_karpenters_course_is_met() -> None:
    """Over several seeds the mean course stays near the recorded one: nodes, commands, pods moved, kinds, short lives.

    One recording is one throw of the dice (Karpenter's ties, the scheduler's, the order of evictions); single seeds
    scatter around it, so their mean is compared, and the recorded figures must lie among theirs.
    """
    recording, catalogue = load_recording(RECORDING), load_kwok_types(TYPES)
    results = [replay(recording, catalogue, seed=seed) for seed in SEEDS]
    found = [agreement(recording, result) for result in results]
    for index, there in enumerate(found[0].recorded):
        here = [entry.simulated[index] for entry in found]
        assert abs(mean(here) - there) <= max(0.2 * there, 2), f"minute {found[0].minutes[index]}"
    for pair in ("commands", "pods", "replaces"):
        there = getattr(found[0], pair)[0]
        assert abs(mean(getattr(entry, pair)[1] for entry in found) - there) <= 0.35 * there, pair
    assert all(entry.deletes[1] > 0 and entry.replaces[1] > 0 and entry.short_lives[1] > 10 for entry in found)
    assert not any(result.violations for result in results)


@needs_shared
def test_new_rules_would_have_kept_that_cluster_calm() -> None:
    """The grace period and the threshold on that very run: fewer moves, no pod moved again and again."""
    recording, catalogue = load_recording(RECORDING), load_kwok_types(TYPES)
    old = replay(recording, catalogue, seed=1)
    grace = replay(recording, catalogue, DOVETAIL, {"consolidationGracePeriod": "30m"}, seed=1, name="grace-period")
    threshold = replay(
        recording, catalogue, DOVETAIL, {"consolidationSavingsThreshold": 0.01}, seed=1, name="threshold"
    )
    assert grace.pods_disrupted * 4 < old.pods_disrupted
    assert threshold.pods_disrupted * 2 < old.pods_disrupted


@needs_shared
def test_command_prints_both_curves(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m dovetail.sim.recording` shows the recorded and the simulated nodes minute by minute."""
    assert main([str(RECORDING), "--types", str(TYPES)]) == 0
    said = capsys.readouterr().out
    assert "recorded " in said
    assert "commands: recorded 23" in said


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
