"""`dovetail whatif` from the command line: a small capture, three runs, a recommendation and a patch."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from dovetail.cli.main import main
from dovetail.model import names
from dovetail.model.settings import DOVETAIL
from dovetail.sim.whatif import WhatIf, recommend, window_of
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
        import msgspec

        metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=town.now - age)
        town.pods[name] = msgspec.structs.replace(pod, metadata=metadata)
    return town


def test_the_promised_json(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The JSON has three results in the format of `simulate`, a recommendation and the patch."""
    options = _write(_town(), tmp_path)
    asked = ["--set", "consolidateAfter=5m", "--set", "consolidationGracePeriod=10m", "--for", "30m"]
    assert main(["whatif", *options, *asked, "-o", "json"]) == 0
    captured = capsysbinary.readouterr()
    answer = json.loads(captured.out)
    for key in ("baseline", "karpenter", "changed"):
        assert {"policy", "cost", "podsDisrupted", "shortLivedNodes", "violations"} <= set(answer[key])
        assert answer[key]["violations"] == []
    assert answer["karpenter"]["policy"] == "karpenter-1.15"
    assert set(answer["recommendation"]) == {"apply", "why"}
    assert answer["patch"] == {"spec": {"disruption": {"consolidateAfter": "5m", "consolidationGracePeriod": "10m"}}}
    assert b"about" in captured.err.splitlines()[-1]


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
    assert "a restart counted as $0.02" in out.replace("\n", " ")
    assert "consolidateAfter" in out
    if form == "text":
        assert max(map(len, out.splitlines())) <= 80


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
    ],
)
def test_bad_input_is_one_sentence(
    asked: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad input fails with one sentence that says what to write instead, and exit status 2."""
    assert main(["whatif", *_write(_town(), tmp_path), *asked]) == 2
    assert said in capsys.readouterr().err


def test_a_capture_without_young_pods_runs_on() -> None:
    """The window is before the capture if pods were created in it, otherwise after it."""
    for young in (True, False):
        town = _town(young)
        asked = WhatIf(
            cluster=town.cluster,
            catalogue=town.catalogue,
            settings=DOVETAIL,
            now=town.now,
            fields={},
            pools=(),
            length=3600 * 10**9,
        )
        window = window_of(asked)
        assert (window.arrivals > 0) is young


def test_the_annotation_is_patched_where_it_wins(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """If the pool has its policy in the annotation, the patch changes the annotation."""
    import msgspec

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
        (_result(100, 50), _result(100, 50), False),
        (_result(100, 50, 10), _result(90, 50, 9000), False),
    ],
)
def test_the_rule_of_the_recommendation(before, after, apply: bool) -> None:  # type: ignore[no-untyped-def]
    """A recommended policy is cheaper or calmer at the stated price of a restart, and never makes pods wait."""
    assert recommend(before, after).apply is apply


@pytest.mark.parametrize(
    ("saved", "apply"),
    [
        ((10, 9, 11), True),  # the same on every seed
        ((10, -9, 1), False),  # the first seed alone would recommend it
        ((-1, 40, 42), False),  # too much variance, although the mean is far above zero
        ((-10, -9, -11), False),
    ],
)
def test_the_scatter_over_the_seeds_counts(saved: tuple[int, ...], apply: bool) -> None:
    """The means decide, unless the variance over the seeds is larger."""
    first, *others = [(_result(100, 50), _result(100 - amount, 50)) for amount in saved]
    found = recommend(*first, others)
    assert found.apply is apply
    assert "on average over 3 seeds" in found.why


def test_several_seeds(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Every run is in the result, the first seed's run keeps its place, and the text states the variance."""
    asked = [*_write(_town(), tmp_path), "--set", "consolidateAfter=5m", "--for", "10m"]
    assert main(["whatif", *asked, "-o", "json"]) == 0
    alone = json.loads(capsysbinary.readouterr().out)
    assert main(["whatif", *asked, "--seeds", "2", "-o", "json"]) == 0
    both = json.loads(capsysbinary.readouterr().out)
    assert alone["seeds"] == 1
    assert [run["seed"] for run in both["runs"]] == [0, 1]
    for key in ("baseline", "karpenter", "changed"):
        assert both[key] == alone[key] == both["runs"][0][key]
    costs = [float(run["changed"]["cost"]) - float(run["baseline"]["cost"]) for run in both["runs"]]
    assert both["scatter"]["cost"]["mean"] == pytest.approx(sum(costs) / 2, abs=1e-3)
    assert main(["whatif", *asked, "--seeds", "2"]) == 0
    assert "Over 2 seeds the change makes" in capsysbinary.readouterr().out.decode()
