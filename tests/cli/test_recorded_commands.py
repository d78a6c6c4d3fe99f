"""`replay`, `tune` and `regret` on a recording: calibration first, one choice, and clear words for bad input."""

import json
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.api.catalogue import encode_catalogue, load_catalogue
from dovetail.cli.main import main
from dovetail.model import names
from dovetail.model.settings import KARPENTER_1_15
from dovetail.recordings.read import load_cluster_recording
from dovetail.sim import halving, tune
from dovetail.sim.recorded_timeline import real_result
from dovetail.sim.scenarios.scenario import Policy, load_scenario
from dovetail.sim.scenarios.simulated_cloud import catalogue_of
from dovetail.sim.world.clock import MINUTE, SECOND
from tests.support.recorded_world import record_run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a recording of forty minutes of a simulated Karpenter, and its catalogue."""
    folder = tmp_path_factory.mktemp("recorded")
    scenario = load_scenario("issue-7146")
    policy = Policy(name="karpenter-1.15", settings=KARPENTER_1_15)
    (folder / "rec").mkdir()
    record_run(scenario, policy, folder / "rec", length=2400 * SECOND, seed=7)
    catalogue = folder / "catalogue.json"
    catalogue.write_bytes(encode_catalogue(catalogue_of(scenario)))
    return folder / "rec", catalogue


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main([*words, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_a_replay_begins_with_its_calibration(recorded: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """The policy that ran is simulated first, and agrees with the recorded bill."""
    words = ("replay", str(recorded[0]), "--catalog", str(recorded[1]), "--policy", "recommended", "--seeds", "2")
    found = _json(capsys, *words)
    assert found["today"] == "karpenter-1.15"
    calibration = found["calibration"]
    assert isinstance(calibration, dict)
    assert set(calibration) == {"real", "simulated", "error", "reliable", "why"}
    assert calibration["reliable"] is True
    assert calibration["error"]["cost"] <= 0.08
    assert [entry["policy"] for entry in found["policies"]] == ["today", "recommended"]  # type: ignore[attr-defined]
    assert main(list(words)) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("Simulated karpenter-1.15: $")
    assert "recorded: $" in first


def test_a_replay_has_every_policy_by_its_name(
    recorded: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The policy that ran is there as `today` and by its own name; --types names the instance types as well."""
    kinds = load_catalogue(str(recorded[1])).instance_types
    types = [
        {
            "name": kind.name,
            "offerings": [
                {
                    "Price": offer.price_float,
                    "Available": True,
                    "Requirements": [
                        {"key": names.CAPACITY_TYPE, "operator": "In", "values": [offer.capacity_type]},
                        {"key": names.ZONE, "operator": "In", "values": [offer.zone]},
                    ],
                }
                for offer in kind.offerings
            ],
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {"cpu": "4", "memory": "16Gi", "pods": "110"},
        }
        for kind in kinds
    ]
    (tmp_path / "types.json").write_text(json.dumps(types))
    words = ("replay", str(recorded[0]), "--types", str(tmp_path / "types.json"), "--seeds", "1")
    found = _json(capsys, *words)
    policies: Any = found["policies"]
    assert [entry["policy"] for entry in policies] == ["today", "karpenter-1.15", "default", "recommended"]
    assert policies[1] == {**policies[0], "policy": "karpenter-1.15"}


def test_regret_counts_what_was_undone(recorded: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Restarts are those of the recording, by pool; without advice nothing is simulated."""
    found = _json(capsys, "regret", str(recorded[0]), "--no-advice")
    replay = _json(
        capsys, "replay", str(recorded[0]), "--catalog", str(recorded[1]), "--seeds", "1", "--policy", "default"
    )
    (pool,) = found["pools"]  # type: ignore[misc]
    assert pool["moves"] == replay["recorded"]["podsDisrupted"] > 0  # type: ignore[index]
    assert 0 <= pool["undoneWithinTheHour"] <= pool["moves"]
    assert pool["advice"] == []


def test_tune_picks_by_the_price_of_a_restart(
    recorded: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A dear restart picks the calm policy, a free one the cheap policy; patch and settings are those of the choice."""
    calm = tune.Choice(
        name="calm", fields={"consolidationPolicy": "WhenEmpty"}, words={"search": "value"}, is_dovetails=True
    )
    monkeypatch.setattr(tune, "choices", lambda: (calm,))
    monkeypatch.setattr(tune, "more_choices", lambda: ())
    words = ("tune", str(recorded[0]), "--catalog", str(recorded[1]), "--keep", str(tmp_path / "runs"))
    dear = _json(capsys, *words, "--restart-price", "1")
    assert dear["chosen"] == "calm"
    assert dear["settings"] == {"search": "value"}
    assert dear["patch"] == {
        "metadata": {"labels": {"dovetail.dev/manage": "true"}},
        "spec": {"disruption": {"consolidationPolicy": "WhenEmpty"}},
    }
    free = _json(capsys, *words, "--restart-price", "0")
    assert free["chosen"] == "today"
    assert free["patch"] == {}
    assert [entry["policy"] for entry in free["frontier"]] == ["today", "calm"]  # type: ignore[attr-defined]
    assert main([*words, "--restart-price", "1", "-o", "html"]) == 0
    assert "calm fits best" in capsys.readouterr().out


def test_tune_drops_early_what_is_beaten(
    recorded: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The choice is that of a search that drops nothing, every drop is explained, and a resumed search ends alike."""
    calm = {"consolidationPolicy": "WhenEmpty"}
    named = {"calm": calm, "twin of calm": calm, "hasty": {"consolidateAfter": "30s"}}
    tried = tuple(tune.Choice(name=name, fields=each, words={}, is_dovetails=False) for name, each in named.items())
    monkeypatch.setattr(halving, "BILL_MARGIN", 1.0)  # forty minutes are too short for a certain difference
    monkeypatch.setattr(halving, "RESTART_MARGIN", 10.0)
    monkeypatch.setattr(tune, "choices", lambda: tried)
    monkeypatch.setattr(tune, "more_choices", lambda: ())
    monkeypatch.setattr(halving, "plan_of", lambda whole: halving.spread(whole, settle=MINUTE, measured=2 * MINUTE))
    runs = tmp_path / "runs"
    words = ("tune", str(recorded[0]), "--catalog", str(recorded[1]), "--restart-price", "1", "--seeds", "1")
    found: Any = _json(capsys, *words, "--keep", str(runs))
    whole: Any = _json(capsys, *words, "--whole", "--keep", str(runs))
    assert whole["dropped"] == []
    assert found["chosen"] == whole["chosen"] == "calm"
    assert "twin of calm" in [entry["policy"] for entry in found["dropped"]]
    figures = {entry["policy"]: {**entry, "beaten": None} for entry in whole["frontier"]}
    assert all({**entry, "beaten": None} == figures[entry["policy"]] for entry in found["frontier"])
    played, dropped = ([entry["policy"] for entry in found[key]] for key in ("frontier", "dropped"))
    assert sorted(played + dropped) == sorted(figures)
    assert all(entry["by"] in entry["why"] and entry["hours"] > 0 for entry in found["dropped"])
    for path in sorted(runs.iterdir())[::2]:
        path.unlink()
    assert _json(capsys, *words, "--keep", str(runs)) == found
    assert main([*words, "--keep", str(runs)]) == 0
    assert "DROPPED" in capsys.readouterr().out
    assert main([*words, "--keep", str(runs), "-o", "html"]) == 0
    assert "dropped after short stretches" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("tune",), "give one of a RECORDING, a captured cluster with -f FILE, and a trace"),
        (("tune", "{rec}", "--restart-price", "-1"), "--restart-price is -1; write dollars"),
        (("tune", "{rec}", "--restart-price", "15m"), "--restart-price is 15m; write dollars"),
        (("tune", "{rec}", "--restart-price", "nan"), "--restart-price is nan; write dollars"),
        (("tune", "{rec}", "--seeds", "0"), "--seeds is 0"),
        (("replay", "{rec}", "--types", "x"), "x: can't be read"),
        (("replay", "{rec}", "--types", "x", "--catalog", "y"), "--types and --catalog both name the instance types"),
        (("replay", "{empty}"), "is not a recording of a cluster"),
        (("regret", "{empty}"), "is not a recording of a cluster"),
        (("replay", "{rec}"), "scenario"),
        (("whatif", "{empty}", "--set", "consolidateAfter=5m"), "captures go with -f"),
        (("whatif", "{rec}", "-f", "x.json", "--set", "consolidateAfter=5m"), "not both"),
        (("ui", "{empty}"), "is not a recording of a cluster"),
    ],
)
def test_bad_input_is_one_sentence(
    words: tuple[str, ...],
    sentence: str,
    recorded: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wrong options and folders are refused with status 2 and one sentence."""
    filled = [word.format(rec=recorded[0], empty=tmp_path) for word in words]
    assert main(filled) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_the_page_shows_what_really_happened(recorded: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """The page of a replay opens with the real restarts and bill, and has the real lanes beside the simulated ones."""
    words = ["replay", str(recorded[0]), "--catalog", str(recorded[1]), "--policy", "recommended", "--seeds", "1"]
    found = _json(capsys, *words)
    assert main([*words, "-o", "html"]) == 0
    page = capsys.readouterr().out
    real = found["recorded"]
    assert isinstance(real, dict)
    assert f"rec: {real['podsDisrupted']:.0f} restarts, ${real['cost']:.2f} in 40m" in page
    assert "what really happened" in page


def test_a_recorded_result_is_what_the_recording_says(recorded: tuple[Path, Path]) -> None:
    """Machines, stays and commands of the timeline agree with the claims and pods of the recording."""
    recording = load_cluster_recording(recorded[0])
    result = real_result(recording, load_catalogue(recorded[1]))
    assert len(result.timeline.machines) == len(recording.claims)
    assert len(result.timeline.stays) == len(recording.pods)
    assert sum(result.timeline.stays.moved) == result.pods_disrupted
    assert sum(taken.pods for taken in result.timeline.commands) == result.pods_disrupted
    assert {name for taken in result.timeline.commands for name in taken.nodes} == {
        machine.name for machine in result.timeline.machines if machine.fate != "kept"
    }


def test_whatif_replays_the_whole_recording(recorded: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """The first column is what ran, calibrated against all of the recording; its figures are those of `replay`."""
    found = _json(
        capsys, "whatif", str(recorded[0]), "--catalog", str(recorded[1]), "--set", "manage=true", "--seeds", "1"
    )
    replay = _json(
        capsys, "replay", str(recorded[0]), "--catalog", str(recorded[1]), "--seeds", "1", "--policy", "default"
    )
    assert found["today"] == "karpenter-1.15"
    assert found["calibration"] == replay["calibration"]
    assert found["patch"] == {"metadata": {"labels": {"dovetail.dev/manage": "true"}}}
    changed, default = found["changed"], replay["policies"][1]  # type: ignore[index]
    assert float(changed["cost"]) == pytest.approx(default["cost"], abs=1e-4)  # type: ignore[index]
    assert changed["podsDisrupted"] == default["podsDisrupted"]  # type: ignore[index]


def test_simulate_takes_a_recording(recorded: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """The policy that ran comes first and is calibrated, whatever else is asked for."""
    words = ("simulate", str(recorded[0]), "--catalog", str(recorded[1]), "--policy", "recommended")
    found = _json(capsys, *words)
    assert [entry["policy"] for entry in found["policies"]] == ["today", "recommended"]  # type: ignore[attr-defined]
    replay = _json(
        capsys, "replay", str(recorded[0]), "--catalog", str(recorded[1]), "--seeds", "1", "--policy", "recommended"
    )
    assert found["calibration"] == replay["calibration"]
    assert main(["simulate", "issue-7146", "--catalog", "x"]) == 2
    assert "--catalog goes with a recording" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["replay"],
        ["regret"],
        ["tune"],
        ["ui"],
        ["whatif", "--set", "consolidateAfter=5m"],
    ],
)
def test_what_is_no_recording_is_named(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder or file that is not a recording, and one that is not there, are one sentence in every command."""
    other = tmp_path / "cluster.json"
    other.write_text("{}")
    for path in (tmp_path, other, tmp_path / "nowhere"):
        assert main([words[0], str(path), *words[1:]]) == 2
        said = capsys.readouterr().err
        assert str(path) in said
        assert "Traceback" not in said
        assert said.count("\n") == 1


def test_an_archive_stands_for_its_folder(
    recorded: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command takes a .tar.gz of the folder and says the same of it; `regret` reads it once."""
    folder, catalogue = recorded
    archive = tmp_path / "rec.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, arcname="rec")
    reads: list[Path] = []

    def counted(path: Path) -> object:
        reads.append(path)
        return load_cluster_recording(path)

    monkeypatch.setattr("dovetail.recordings.read.load_cluster_recording", counted)
    found = [
        _json(capsys, "regret", str(path), "--no-advice", "--catalog", str(catalogue)) for path in (folder, archive)
    ]
    assert found[0] == found[1]
    assert len(reads) == 2
    short = ("--until", "60s", "--policy", "today", "--catalog", str(catalogue))
    assert _json(capsys, "simulate", str(folder), *short) == _json(capsys, "simulate", str(archive), *short)


def test_regret_of_several_clusters(recorded: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Each recording is counted as if alone, and the total is their sum."""
    alone = _json(capsys, "regret", str(recorded[0]), "--no-advice")
    found: Any = _json(capsys, "regret", str(recorded[0]), str(recorded[0]), "--no-advice")
    assert [entry["pools"] for entry in found["clusters"]] == [alone["pools"]] * 2
    pools: Any = alone["pools"]
    assert found["total"]["moves"] == 2 * sum(pool["moves"] for pool in pools)


def test_diff_takes_a_recording(
    recorded: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change is judged by the cluster as it was at the end of the recording."""
    recording = load_cluster_recording(recorded[0])
    cluster = recording.cluster_at(recording.ends)
    pool = cluster.node_pools[0]
    tree = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **msgspec.to_builtins(pool)}
    tree["metadata"] = {"name": pool.metadata.name}
    tree["spec"]["template"]["metadata"] = {"labels": {"team": "a"}}
    path = tmp_path / "pool.json"
    path.write_text(json.dumps(tree))
    found: Any = _json(capsys, "diff", "-f", str(recorded[0]), "--catalog", str(recorded[1]), "--change", str(path))
    assert found["drifts"][0]["nodes"] == len(cluster.node_claims)


def test_regret_needs_one_source(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a recording nor --live, or both, is refused."""
    for words in (["regret"], ["regret", "somewhere", "--live"]):
        assert main(words) == 2
        assert "give a RECORDING, or --live" in capsys.readouterr().err
