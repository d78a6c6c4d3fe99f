"""`dovetail whatif` from the command line: a small capture, columns on several seeds, a recommendation, a patch."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dovetail.api.policy_change import with_policy_field
from dovetail.cli.main import main
from dovetail.model import names
from dovetail.sim.advice import recommend
from dovetail.sim.calibration import calibrate_rate
from dovetail.sim.pages.whatif import _title
from dovetail.sim.whatif import WhatIf, what_if
from tests.cli.test_plan_command import _write
from tests.support.design_world import Town, kind

pytestmark = pytest.mark.usefixtures("one_core")


def _town(young: bool = True) -> Town:
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0, "consolidateAfter": "15s"})
    town.pool("other")
    age = timedelta(minutes=20) if young else timedelta(days=3)
    for number in range(3):
        town.node(f"n{number}", "l", age=timedelta(days=4))
        town.fill(f"n{number}", 2, cpu="500m")
    for name, pod in list(town.pods.items()):
        metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=town.now - age)
        town.pods[name] = msgspec.structs.replace(pod, metadata=metadata)
    return town


def _json(words: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    assert main(["whatif", *words, "-o", "json"]) == 0
    return json.loads(capsysbinary.readouterr().out)


def test_the_promised_json(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The JSON has three results with their scatter, today's policy, the calibration, a recommendation and a patch."""
    options = _write(_town(), tmp_path)
    asked = ["--set", "consolidateAfter=5m", "--set", "consolidationGracePeriod=10m", "--for", "30m"]
    assert main(["whatif", *options, *asked, "-o", "json"]) == 0
    captured = capsysbinary.readouterr()
    answer = json.loads(captured.out)
    for key in ("baseline", "karpenter", "changed"):
        assert {"policy", "cost", "podsDisrupted", "shortLivedNodes", "violations"} <= set(answer[key])
        assert answer[key]["violations"] == []
        assert set(answer[key]["scatter"]) == {"cost", "podsDisrupted"}
    assert answer["karpenter"]["policy"] == "karpenter-1.15"
    assert answer["today"] == "karpenter-1.15"
    assert set(answer["calibration"]) == {"real", "simulated", "error", "reliable", "why"}
    for part in ("real", "simulated", "error"):
        assert set(answer["calibration"][part]) == {"costPerHour"}
    assert answer["seeds"] == len(answer["runs"]) == 3
    assert set(answer["recommendation"]) == {"apply", "why"}
    assert answer["patch"] == {
        "metadata": {"labels": {names.MANAGE: "true"}},
        "spec": {"disruption": {"consolidateAfter": "5m", "consolidationGracePeriod": "10m"}},
    }
    assert answer["settings"] == {}
    assert any(b"on an idle machine" in line for line in captured.err.splitlines())


@pytest.mark.parametrize(
    ("labelled", "today"), [((), "karpenter-1.15"), (("default",), "mixed"), (("default", "other"), "dovetail")]
)
def test_the_first_column_is_what_the_cluster_has_today(
    labelled: tuple[str, ...], today: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Pools that Dovetail does not manage run under Karpenter's rules, and the others under Dovetail's."""
    town = _town(young=False)
    town.pools["default"] = with_policy_field(town.pools["default"], "consolidationSavingsThreshold", 100)
    for name in labelled:
        pool = town.pools[name]
        metadata = msgspec.structs.replace(pool.metadata, labels={names.MANAGE: "true"})
        town.pools[name] = msgspec.structs.replace(pool, metadata=metadata)
    words = [*_write(town, tmp_path), "--set", "consolidateAfter=15s", "--for", "20m", "--seeds", "1"]
    answer = _json(words, capsysbinary)
    assert answer["today"] == today
    assert answer["managed"] == {"today": list(labelled), "changed": list(labelled)}
    assert "metadata" not in answer["patch"]
    figures = {key: {**answer[key], "policy": ""} for key in ("baseline", "karpenter", "changed")}
    assert (figures["baseline"] == figures["karpenter"]) is (today == "karpenter-1.15")
    assert figures["changed"] == figures["baseline"], "the change sets what the pools have already"


def test_settings_that_belong_to_the_change_are_printed(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """`base=recommended` and single settings stand in `settings`, beside what the user's own file says."""
    file = tmp_path / "settings.yaml"
    file.write_text("batchMaximum: 50\nnominatedNodes: [n0]\n")
    words = [*_write(_town(), tmp_path), "--settings", str(file), "--for", "5m", "--seeds", "1"]
    answer = _json([*words, "--set", "base=recommended", "--set", "pollInterval=20s"], capsysbinary)
    assert answer["settings"] == {"batchMaximum": 50, "base": "recommended", "pollInterval": "20s"}
    assert set(answer["patch"]["spec"]["disruption"]) == {"restartPrice"}
    assert main(["whatif", *words, "--set", "base=recommended", "-o", "yaml"]) == 0
    printed = capsysbinary.readouterr().out.decode()
    assert yaml.safe_load(printed)["spec"] == answer["patch"]["spec"]
    comments = "\n".join(line[4:] for line in printed.splitlines() if line.startswith("#   "))
    assert yaml.safe_load(comments) == {"batchMaximum": 50, "base": "recommended"}


def test_pools_can_be_given_to_dovetail_and_back(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`manage=true` labels the chosen pools, `manage=false` takes the label off, and nothing else changes."""
    words = [*_write(_town(), tmp_path), "--pool", "default", "--for", "5m", "--seeds", "1"]
    answer = _json([*words, "--set", "manage=true"], capsysbinary)
    assert answer["patch"] == {"metadata": {"labels": {names.MANAGE: "true"}}}
    assert answer["managed"]["changed"] == ["default"]
    town = _town()
    pool = town.pools["default"]
    metadata = msgspec.structs.replace(pool.metadata, labels={names.MANAGE: "true"})
    town.pools["default"] = msgspec.structs.replace(pool, metadata=metadata)
    words = [*_write(town, tmp_path), "--pool", "default", "--for", "5m", "--seeds", "1"]
    answer = _json([*words, "--set", "manage=false"], capsysbinary)
    assert answer["patch"] == {"metadata": {"labels": {names.MANAGE: None}}}
    assert {**answer["changed"], "policy": ""} == {**answer["karpenter"], "policy": ""}


def test_the_patch_as_yaml(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`-o yaml` prints a file for `kubectl patch --patch-file`, with usage in comments."""
    options = _write(_town(young=False), tmp_path)
    assert (
        main(["whatif", *options, "--set", "consolidateAfter=5m", "--pool", "default", "--for", "10m", "-o", "yaml"])
        == 0
    )
    out = capsysbinary.readouterr().out
    assert yaml.safe_load(out) == {"spec": {"disruption": {"consolidateAfter": "5m"}}}
    assert b"kubectl patch nodepool default --type merge" in out


@pytest.mark.parametrize("form", ["text", "html"])
def test_words_and_page(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text and page have the recommendation and the patch; the text fits a terminal."""
    options = _write(_town(young=False), tmp_path)
    assert main(["whatif", *options, "--set", "consolidateAfter=Never", "--for", "10m", "-o", form]) == 0
    out = capsys.readouterr().out
    assert "Can't tell" in out or "a restart counted as $0.02" in out.replace("\n", " ")
    assert "consolidateAfter" in out
    if form == "text":
        assert max(map(len, out.splitlines())) <= 80


def test_the_title_claims_nothing_that_the_calibration_rejects() -> None:
    """The page's title is the mean over the seeds, or that nobody can tell."""
    before, after = {"podsDisrupted": 100, "cost": "10.0000"}, {"podsDisrupted": 50, "cost": "11.0000"}
    named = "consolidateAfter=5m"
    assert _title(named, (before, after), reliable=True) == f"{named}: 50 % fewer restarts, 10 % higher bill"
    assert _title(named, (before, after), reliable=False) == f"Can't tell what {named} would do"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], "write --set FIELD=VALUE"),
        (["--set", "consolidateAfter"], "write FIELD=VALUE"),
        (["--set", "consolidateafter=5m"], "did you mean consolidateAfter?"),
        (["--set", "consolidateAfter=soon"], "consolidateAfter"),
        (["--set", "consolidationSavingsThreshold=much"], "write a number"),
        (["--set", "consolidateAfter=5m", "--set", "consolidateAfter=6m"], "given twice"),
        (["--set", "consolidateAfter=5m", "--pool", "defalt"], "did you mean default?"),
        (["--set", "consolidateAfter=5m", "--for", "never"], "--for"),
        (["--set", "consolidateAfter=5m", "--for", "0s"], "--for"),
        (["--set", "budgets=[{nodes: 120%}]"], "budgets"),
        (["--set", "consolidateAfter=5m", "--seeds", "0"], "--seeds is 0; write a number from 1"),
        (["--set", "manage=perhaps"], "write true or false"),
        (["--set", "base=best"], "base"),
        (["--policy", "best"], "write recommended"),
        (["--set", "batchMaximum=many"], "batchMaximum"),
        (["--set", "batchMaximun=10"], "did you mean batchMaximum?"),
    ],
)
def test_bad_input_is_one_sentence(
    asked: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad input fails with one sentence that says what to write instead, and exit status 2."""
    assert main(["whatif", *_write(_town(), tmp_path), *asked]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("young", [True, False])
def test_pods_that_came_lately_come_again(young: bool) -> None:
    """The replay starts from the capture; only pods younger than its length come and go."""
    town = _town(young)
    asked = WhatIf(
        cluster=town.cluster,
        catalogue=town.catalogue,
        now=town.now,
        fields={"consolidateAfter": "Never"},
        length=3600 * 10**9,
        seeds=1,
    )
    answer = what_if(asked, workers=1)
    assert asked.arrivals == (6 if young else 0)
    assert answer.first.changed.nodes_at_start == 3
    assert answer.first.changed.series.pods[0] == answer.first.changed.series.pods[-1] == 6


def test_the_annotation_is_patched_where_it_wins(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """If the pool has its policy in the annotation, the patch changes the annotation."""
    town = _town(young=False)
    pool = town.pools["default"]
    written = {names.POLICY_ANNOTATION: '{"consolidateAfter": "1m"}'}
    town.pools["default"] = msgspec.structs.replace(
        pool, metadata=msgspec.structs.replace(pool.metadata, annotations=written)
    )
    options = _write(town, tmp_path)
    assert (
        main(["whatif", *options, "--set", "consolidateAfter=5m", "--pool", "default", "--for", "5m", "-o", "yaml"])
        == 0
    )
    patch = yaml.safe_load(capsysbinary.readouterr().out)
    assert json.loads(patch["metadata"]["annotations"][names.POLICY_ANNOTATION]) == {"consolidateAfter": "5m"}


def _result(cost: float, disrupted: int, waited: float = 0.0):  # type: ignore[no-untyped-def]
    from types import SimpleNamespace

    return SimpleNamespace(
        cost=round(cost * 10**18), pods_disrupted=disrupted, pending_pod_seconds=waited, violations=()
    )


@pytest.mark.parametrize(
    ("before", "after", "apply"),
    [
        (_result(100, 50), _result(90, 50), True),
        (_result(100, 50), _result(110, 50), False),
        (_result(100, 500), _result(101, 50), True),
        (_result(100, 50), _result(99, 500), False),
        (_result(100, 50), _result(100, 50), None),
        (_result(100, 50), _result(99.9, 50), None),
        (_result(100, 50, 10), _result(90, 50, 9000), False),
    ],
)
def test_the_rule_of_the_recommendation(before, after, apply: bool | None) -> None:  # type: ignore[no-untyped-def]
    """A recommended policy is cheaper or calmer at the stated price of a restart, and never makes pods wait."""
    assert recommend([(before, after)]).apply is apply


@pytest.mark.parametrize(
    ("saved", "apply"),
    [
        ((10, 9, 11), True),  # the same on every seed
        ((10, -9, 1), None),  # the first seed alone would recommend it
        ((-1, 40, 42), None),  # too much variance, although the mean is far above zero
        ((-10, -9, -11), False),
    ],
)
def test_the_scatter_over_the_seeds_counts(saved: tuple[int, ...], apply: bool | None) -> None:
    """The means decide; if the variance over the seeds is larger, nobody can tell."""
    found = recommend([(_result(100, 50), _result(100 - amount, 50)) for amount in saved])
    assert found.apply is apply
    assert "on average over 3 seeds" in found.why


@pytest.mark.parametrize(("simulated", "reliable"), [(30.0, True), (33.0, True), (26.9, False), (33.1, False)])
def test_nothing_is_recommended_on_a_replay_that_is_off(simulated: float, reliable: bool) -> None:
    """If the replay of today's policy is off by more than a tenth, the answer says so and is "can't tell"."""
    calibration = calibrate_rate(30.0, simulated, "karpenter-1.15")
    assert calibration.reliable is reliable
    found = recommend([(_result(100, 50), _result(80, 50))], calibration)
    assert found.apply is (True if reliable else None)
    assert ("Don't rely" in found.why) is not reliable


def test_several_seeds(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Each result is the mean over the seeds with its standard error; every run is in the answer."""
    asked = [*_write(_town(), tmp_path), "--set", "consolidateAfter=5m", "--for", "40m"]
    alone = _json([*asked, "--seeds", "1"], capsysbinary)
    both = _json([*asked, "--seeds", "2"], capsysbinary)
    assert alone["seeds"] == 1
    assert alone["baseline"]["scatter"] == {"cost": None, "podsDisrupted": None}
    assert [run["seed"] for run in both["runs"]] == [0, 1]
    for key in ("baseline", "karpenter", "changed"):
        single = {name: value for name, value in alone[key].items() if name != "scatter"}
        assert single == both["runs"][0][key]
        costs = [float(run[key]["cost"]) for run in both["runs"]]
        assert float(both[key]["cost"]) == pytest.approx(sum(costs) / 2, abs=1e-3)
        assert both[key]["scatter"]["cost"] == pytest.approx(abs(costs[0] - costs[1]) / 2, abs=1e-3)
    assert main(["whatif", *asked, "--seeds", "2"]) == 0
    assert "Chance moves the difference by ± $" in capsysbinary.readouterr().out.decode().replace("\n", " ")


def test_figures_so_far_are_shown_while_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures after a hundredth of the time come first, those after a half last, all on standard error."""
    asked = [*_write(_town(), tmp_path), "--set", "consolidateAfter=5m", "--for", "100m", "--seeds", "2", "-o", "json"]
    assert main(["whatif", *asked]) == 0
    captured = capsys.readouterr()
    looks = [line for line in captured.err.splitlines() if "first seed: today's policy" in line]
    assert [line.split(" of ")[0] for line in looks] == [f"after {minutes}m" for minutes in (1, 4, 12, 25, 50)]
    assert "first seed" not in captured.out
