"""One question to several clusters: a table, a total, and a row for a cluster that does not answer."""

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.cli.main import main
from dovetail.live.kubernetes.client import ApiError
from tests.cli.test_diff_command import CASE
from tests.support.control_plane import ControlPlane

CATALOG = ("--catalog", str(CASE / "catalog.json.gz"))


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Return two folders with a captured cluster each."""
    for name, case in (("eu", "003"), ("us", "001")):
        (tmp_path / name).mkdir()
        shutil.copy(CASE.parent / case / "cluster.json.gz", tmp_path / name)
    return [str(tmp_path / "eu"), str(tmp_path / "us")]


@pytest.mark.parametrize("command", ["plan", "blockers"])
def test_each_cluster_answers_as_if_alone(command: str, folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An entry is the answer for one, with the cluster's name; the total adds up what can be added up."""
    alone = []
    for folder in folders:
        assert main([command, "-f", folder, *CATALOG, "-o", "json"]) == 0
        alone.append(json.loads(capsys.readouterr().out))
    assert main([command, "-f", *folders, *CATALOG, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["clusters"] == [{"cluster": name, **answer} for name, answer in zip(("eu", "us"), alone, strict=True)]
    total = found["total"]
    assert (total["clusters"], total["answered"]) == (2, 2)
    if command == "plan":
        assert total["actions"] == sum(len(answer["actions"]) for answer in alone)
        assert total["nodes"] == sum(len(answer["nodes"]) for answer in alone)
    else:
        assert total["blockers"] == sum(len(answer["blockers"]) for answer in alone)


@pytest.mark.parametrize("command", ["plan", "blockers"])
@pytest.mark.parametrize("form", ["text", "html"])
def test_a_cluster_that_cant_be_read_is_a_row(
    command: str, form: str, folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are answered; table and page say which one was not, and why."""
    (tmp_path / "empty").mkdir()
    assert main([command, "-f", *folders, str(tmp_path / "empty"), *CATALOG, "-o", form]) == 0
    shown = capsys.readouterr().out
    assert "2 of 3" in shown
    assert "no answer" in shown
    assert form == "html" or max(map(len, shown.splitlines())) <= 80


def test_contexts_that_dont_answer(
    api_server: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A context that is not there and one whose server is away are rows; the one that answers is planned."""
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    context = config["contexts"][0]
    config["clusters"].append({"name": "away", "cluster": {"server": "https://127.0.0.1:9"}})
    user = context["context"]["user"]
    config["contexts"] = [
        {"name": "here", "context": context["context"]},
        {"name": "away", "context": {"cluster": "away", "user": user}},
    ]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    where = ("--kubeconfig", str(path), *CATALOG, "-o", "json")
    assert main(["plan", "--context", "here,away,unknown", *where]) == 0
    found = json.loads(capsys.readouterr().out)
    errors = {entry["cluster"]: entry.get("error", "") for entry in found["clusters"]}
    assert errors["here"] == ""
    assert "does not answer" in errors["away"]
    assert "unknown" in errors["unknown"]
    assert found["total"]["answered"] == 1
    assert main(["plan", "--context", "away,unknown", *where]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--context", "a,,b"], "write different contexts"),
        (["--context", "a,a"], "write different contexts"),
        (["--context", "a,b", "-f", "x"], "leave one of them out"),
        (["--context", "a,b", "--watch"], "name one context"),
    ],
)
def test_wrong_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each gets one sentence and status 2."""
    assert main(["plan", *words]) == 2
    assert said in capsys.readouterr().err


def test_regret_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Folders that hold no recording are rows, and no answer at all is status 2."""
    for name in ("eu", "us"):
        (tmp_path / name).mkdir()
    assert main(["regret", str(tmp_path / "eu"), str(tmp_path / "us"), "-o", "json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert ["error" in entry for entry in found["clusters"]] == [True, True]
    assert found["total"]["moves"] == 0


def _two_and_one_away(api_server: ControlPlane, folder: Path) -> Path:
    """Write a kubeconfig with two contexts of one server, and one of a server that is away."""
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    here = config["contexts"][0]["context"]
    config["clusters"].append({"name": "away", "cluster": {"server": "https://127.0.0.1:9"}})
    away = {"cluster": "away", "user": here["user"]}
    contexts = {"arn:eks/eu": here, "us": here, "away": away}
    config["contexts"] = [{"name": name, "context": context} for name, context in contexts.items()]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def test_regret_of_several_live_clusters(
    api_server: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are watched at the same time, each into a recording of its own; one that is away is a row."""
    from dovetail.cli.cluster import record

    real, met = record._record, asyncio.Barrier(2)
    folders = []

    async def together(args: argparse.Namespace, client: object, folder: Path, *more: Any) -> Any:
        folders.append(folder)
        async with asyncio.timeout(60):
            await met.wait()  # one after the other would wait here in vain
        return await real(args, client, folder, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(record, "_record", together)
    words = ["regret", "--live", "--for", "1s", "--kubeconfig", str(_two_and_one_away(api_server, tmp_path)), *CATALOG]
    assert main([*words, "--context", "arn:eks/eu,away,us", "-o", "json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert [entry["cluster"] for entry in found["clusters"]] == ["arn:eks/eu", "away", "us"]
    eu, away, us = found["clusters"]
    assert eu["pools"] == us["pools"]
    assert "error" not in eu | us
    assert "does not answer" in away["error"]
    assert (found["total"]["clusters"], found["total"]["answered"]) == (3, 2)
    assert len(set(folders)) == 2
    assert "us: wrote 1 files" in shown.err
    assert not any(folder.exists() for folder in folders)


def test_a_watch_that_breaks_is_a_row(
    api_server: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster whose watch ends with a refusal does not take the others with it."""
    from dovetail.cli.cluster import record

    real = record._record

    async def refused(args: argparse.Namespace, *more: Any) -> Any:
        if args.cluster == "us":
            raise ApiError(403, "Forbidden", "no right to list pods")
        return await real(args, *more)

    monkeypatch.setattr(record, "_record", refused)
    words = ["regret", "--live", "--for", "1s", "--kubeconfig", str(_two_and_one_away(api_server, tmp_path)), *CATALOG]
    assert main([*words, "--context", "arn:eks/eu,us"]) == 0
    shown = capsys.readouterr().out
    assert "1 of 2" in shown
    assert "no right to list pods" in shown


def test_a_listing_that_never_ends_is_a_row(
    api_server: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that stops answering once it was reached does not hold the others' answers back for ever."""
    from dovetail.cli.cluster import record

    real, us = record._whole, []

    async def stuck(informers: Any, tasks: Any, stop: asyncio.Event) -> bool:
        if us:
            return await real(informers, tasks, stop)
        us.append(informers)
        return not await stop.wait()

    monkeypatch.setattr(record, "_whole", stuck)
    monkeypatch.setattr(record, "_LATER_SECONDS", 0.0)
    words = ["regret", "--live", "--for", "1s", "--kubeconfig", str(_two_and_one_away(api_server, tmp_path)), *CATALOG]
    assert main([*words, "--context", "arn:eks/eu,us", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    errors = sorted(entry.get("error", "") for entry in found["clusters"])
    assert errors == ["", "it was not watched: the time was over before all its objects had been listed"]


@pytest.mark.parametrize("words", [["--for", "soon"], ["--context", "a,,b"]])
def test_wrong_words_of_regret(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """They are refused at once, not a row for each cluster."""
    assert main(["regret", "--live", "--context", "a,b", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("write a duration" if "--for" in words else "write different contexts") in shown.err


def test_ctrl_c_ends_every_watch_and_answers(api_server: ControlPlane, tmp_path: Path) -> None:
    """One signal is enough: all clusters answer from what was seen until then."""
    config = str(_two_and_one_away(api_server, tmp_path))
    words = ["regret", "--live", "--for", "1h", "--context", "arn:eks/eu,us", "--kubeconfig", config, *CATALOG]
    with subprocess.Popen(
        [sys.executable, "-m", "dovetail.cli.main", *words, "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            seen = 0
            while seen < 2:
                line = process.stderr.readline()
                assert line, "it ended by itself"
                seen += "recording into" in line
            process.send_signal(signal.SIGINT)
            shown, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert json.loads(shown)["total"]["answered"] == 2
