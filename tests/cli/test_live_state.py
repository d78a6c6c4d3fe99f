"""`budgets`, `diff` and `whatif` on a live cluster use what its controller has published, or say so.

The API server is replaced by a captured cluster and a published state; `tests/e2e/test_live_truth.py` has a real one.
"""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.api.findings import InputError
from dovetail.api.settings import load_settings
from dovetail.cli.main import main
from dovetail.lifecycle.published import PublishedState
from dovetail.live.capture import Captured
from dovetail.live.publish import StateReading
from dovetail.model.settings import DOVETAIL, Settings
from dovetail.sim.whatif import WhatIf
from tests.support.golden_cases import DATA, golden_case

Publish = Callable[[StateReading], None]
CASE = "P30"
CATALOGUE = str(DATA / CASE / "catalog.json.gz")
WHATIF = ("whatif", "--set", "consolidateAfter=5m", "--pool", "nowhere")  # refused before anything is simulated
MISSING = StateReading(problem="no controller has published its state: it says so")


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Let the commands read a live cluster and what the test publishes."""
    readings: list[StateReading] = []

    async def capture(_: object) -> Captured:
        return Captured(cluster=golden_case(CASE).cluster)

    async def read_state(*_: object) -> StateReading:
        return readings[-1]

    def with_client(_: object, work: Callable[[Any], Any]) -> Any:
        return asyncio.run(work(SimpleNamespace(server_time=None)))

    monkeypatch.setattr("dovetail.live.capture.capture", capture)
    monkeypatch.setattr("dovetail.live.publish.read_state", read_state)
    monkeypatch.setattr("dovetail.cli.live_cluster.with_client", with_client)
    return readings.append


def reading(settings: Settings) -> StateReading:
    """Return the state of a controller with these settings."""
    return StateReading(state=PublishedState(by="one", at=datetime.now(UTC), settings=settings))


def run(*arguments: str) -> int:
    """Run a command on the live cluster."""
    return main([*arguments, "--catalog", CATALOGUE, "--now", "2026-05-13T15:30:00Z"])


def settings_of(folder: Path, **keys: Any) -> Settings:
    """Return the settings of a file."""
    path = folder / "settings.json"
    path.write_text(json.dumps(keys))
    return load_settings(str(path))


def test_budgets_by_the_controllers_settings(
    publish: Publish, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They count unless other settings are named: here a name in them that the cluster does not have is noted."""
    publish(reading(settings_of(tmp_path, pools=["nowhere"])))
    named = tmp_path / "named.json"
    named.write_text("{}")
    for options, counts in (((), True), (("--settings", str(named)), False)):
        assert run("budgets", "-o", "json", *options) == 0
        shown = capsys.readouterr()
        assert json.loads(shown.out)["pools"]
        assert ("nowhere" in shown.err) is counts
        assert ("the controller's own may differ" in shown.err) is not counts


def test_diff_by_the_controllers_settings(publish: Publish, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A paused controller does nothing, before or after the change."""
    change = tmp_path / "namespace.json"
    change.write_text(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "more"}}))
    for found, acts in ((reading(settings_of(tmp_path, paused=True)), False), (reading(DOVETAIL), True)):
        publish(found)
        assert run("diff", "--change", str(change), "-o", "json") == 0
        assert bool(json.loads(capsys.readouterr().out)["before"]["actions"]) is acts


def test_a_missing_state_is_said(publish: Publish, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`diff` has it among its warnings; the others begin with it on standard error."""
    publish(MISSING)
    change = tmp_path / "namespace.json"
    change.write_text(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "more"}}))
    assert run("diff", "--change", str(change), "-o", "json") == 0
    assert MISSING.problem in json.loads(capsys.readouterr().out)["warnings"]
    for command in (("budgets",), WHATIF):
        run(*command)
        assert MISSING.problem in capsys.readouterr().err


def _asked(publish: Publish, monkeypatch: pytest.MonkeyPatch, found: StateReading, *options: str) -> WhatIf:
    """Return what `whatif` would simulate."""
    asked: list[WhatIf] = []

    def keep(given: WhatIf, *_: object, **__: object) -> None:
        asked.append(given)
        raise InputError("that is enough")

    monkeypatch.setattr("dovetail.sim.whatif.what_if", keep)
    publish(found)
    assert run("whatif", "--set", "consolidateAfter=5m", *options) == 2
    return asked[-1]


def test_whatif_begins_with_the_controllers_settings(
    publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Today's column is by them, and so are the settings that it prints."""
    keys = {"base": "recommended", "batchMaximum": 7, "pools": ["p"], "discount": {"aws": "20%"}}
    found = reading(settings_of(tmp_path, **keys))
    asked = _asked(publish, monkeypatch, found)
    assert found.state is not None
    assert asked.settings == found.state.settings
    assert asked.managed == ("p",)
    assert asked.new_words == keys
    assert "warning" not in capsys.readouterr().err.replace("warning: no ", "")


def test_whatif_says_that_the_controller_has_other_settings(
    publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings that are named count, and the warning says that they are not the controller's."""
    found, file = reading(settings_of(tmp_path, batchMaximum=7)), str(tmp_path / "settings.json")
    _asked(publish, monkeypatch, found, "--settings", file)
    assert "the controller has other settings" not in capsys.readouterr().err
    (tmp_path / "other.json").write_text(json.dumps({"batchMaximum": 8}))
    asked = _asked(publish, monkeypatch, found, "--settings", str(tmp_path / "other.json"))
    assert asked.settings.batch_maximum == 8
    assert "the controller has other settings" in capsys.readouterr().err


def test_pods_that_the_controller_calls_a_nodes_own_are_that(
    publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`plan` beside a controller with `daemonLikePods` sees the same empty nodes as with its settings file."""
    everything = [{"matchExpressions": [{"key": "nothing", "operator": "DoesNotExist"}]}]
    publish(reading(settings_of(tmp_path, daemonLikePods=everything)))
    case, plans = "045", []

    async def capture(_: object) -> Captured:
        return Captured(cluster=golden_case(case).cluster)

    monkeypatch.setattr("dovetail.live.capture.capture", capture)
    monkeypatch.setattr(f"{__name__}.CATALOGUE", str(DATA / case / "catalog.json.gz"))
    for options in ((), ("--settings", str(tmp_path / "settings.json"))):
        assert run("plan", "-o", "json", *options) == 0
        plans.append(json.loads(capsys.readouterr().out))
    assert plans[0]["actions"] == plans[1]["actions"]
    assert {action["action"] for action in plans[0]["actions"]} == {"deleteEmpty"}
    assert plans[0]["nodes"] == plans[1]["nodes"]
