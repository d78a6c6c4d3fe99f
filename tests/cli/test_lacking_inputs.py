"""Every command that takes -f: folders, inputs that lack something, and files beside a live cluster."""

import gzip
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail.cli.main import main
from tests.support.golden_cases import DATA

CASE = DATA / "000"
ASKING = (
    ("plan", "-o", "json"),
    ("plan", "-o", "json", "--to-end"),
    ("explain", "--all", "-o", "json"),
    ("blockers", "-o", "json"),
    ("place", "-o", "json"),
    ("top", "--once"),
    ("whatif", "--set", "consolidateAfter=5m", "--for", "10m", "-o", "json"),
)


def items() -> list[dict[str, Any]]:
    """Return the objects of a golden cluster."""
    found: list[dict[str, Any]] = json.loads(gzip.decompress((CASE / "cluster.json.gz").read_bytes()))["items"]
    return found


def written(path: Path, objects: list[dict[str, Any]]) -> str:
    """Write a List."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return str(path)


def asked(command: tuple[str, ...], *files: str) -> list[str]:
    """Return the arguments that ask a command about files, with the case's catalogue and time."""
    now = json.loads((CASE / "about.json").read_text())["now"]
    return [*command, "-f", *files, "--catalog", str(CASE / "catalog.json.gz"), "--now", now]


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_an_input_without_pods_is_refused(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal is one sentence that names the command that captures it right, and --partial."""
    path = written(tmp_path / "c.json", [item for item in items() if item["kind"] != "Pod"])
    assert main(asked(command, path)) == 2
    shown = capsys.readouterr()
    assert not shown.out
    sentence = shown.err.strip().splitlines()[-1]
    assert sentence.startswith("dovetail: the input has")
    assert "no Pod at all" in sentence
    assert "dovetail snapshot" in sentence
    assert "--partial" in sentence


def test_partial_accepts_it_and_the_answer_says_so_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --partial the first warning, and the first line for people, say what is missing."""
    path = written(tmp_path / "c.json", [item for item in items() if item["kind"] != "Pod"])
    assert main([*asked(("plan", "-o", "json"), path), "--partial"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert warnings[0].startswith("partial input, accepted by --partial: the input has")
    for command in (("plan",), ("explain", "--all"), ("blockers",), ("place",)):
        assert main([*asked(command, path), "--partial"]) == 0
        assert capsys.readouterr().out.startswith("warning: partial input, accepted by --partial"), command


def test_python_says_the_same_as_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`load_cluster` accepts what --partial accepts, and the answer's first warnings are the same."""
    path = written(tmp_path / "c.json", [item for item in items() if item["kind"] != "Pod"])
    assert main([*asked(("plan", "-o", "json"), path), "--partial"]) == 0
    told = json.loads(capsys.readouterr().out)
    question = dovetail.Question(
        cluster=dovetail.load_cluster(path),
        catalogue=dovetail.load_catalogue(str(CASE / "catalog.json.gz")),
        settings=dovetail.load_settings(),
        now=datetime.fromisoformat(told["now"]),
    )
    assert dovetail.plan_round(question).to_dict()["warnings"] == told["warnings"]
    node = told["nodes"][0]["name"]
    assert dovetail.explain(question, node).to_dict()["warnings"][0] == told["warnings"][0]


def test_what_may_be_missing_is_said_on_top(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An input without Namespaces is answered, with a warning before the answer and in JSON."""
    path = written(tmp_path / "c.json", [item for item in items() if item["kind"] not in ("Namespace", "DaemonSet")])
    for command in (("plan",), ("explain", "--all"), ("blockers",), ("place",)):
        assert main(asked(command, path)) == 0
        assert "warning: no DaemonSet in the input" in capsys.readouterr().out.split("\n\n")[0], command
        assert main([*asked(command, path), "-o", "json"]) == 0
        warnings = json.loads(capsys.readouterr().out)["warnings"]
        assert any(text.startswith("no DaemonSet in the input") for text in warnings), command


def test_pages_say_it_above_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page has the warning above its figures, and only there."""
    path = written(tmp_path / "c.json", [item for item in items() if item["kind"] != "DaemonSet"])
    for command in (("plan", "-o", "html"), ("explain", "--all", "-o", "html"), ("blockers", "-o", "html")):
        assert main(asked(command, path)) == 0
        page = capsys.readouterr().out.partition("<script")[0]
        assert page.count("no DaemonSet in the input") == 1, command
        figures = [place for mark in ("<table", 'class="cards"') if (place := page.find(mark)) >= 0]
        assert page.index("no DaemonSet in the input") < min(figures), command


def test_budgets_refuse_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Budgets need no pods, and two clusters in one call are theirs to ask about."""
    path = written(tmp_path / "c.json", [item for item in items() if item["kind"] != "Pod"])
    assert main(["budgets", "-f", path, "-o", "json"]) == 0
    assert "no Pod" not in capsys.readouterr().err


def test_two_clusters_in_one_call_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two captures with objects of one name and different uids are of two clusters."""
    objects = items()
    others = [{**item, "metadata": {**item["metadata"], "uid": f"other-{n}"}} for n, item in enumerate(objects)]
    files = written(tmp_path / "a.json", objects), written(tmp_path / "b.json", others)
    assert main(asked(("plan", "-o", "json"), *files)) == 2
    assert "two clusters" in capsys.readouterr().err
    assert main([*asked(("plan", "-o", "json"), *files), "--partial"]) == 0


@pytest.mark.parametrize("option", ["--context", "--kubeconfig"])
@pytest.mark.parametrize("command", [*ASKING, ("budgets",)], ids=" ".join)
def test_files_and_a_live_cluster_exclude_each_other(
    command: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A context beside -f would be ignored, so it is an error."""
    path = str(CASE / "cluster.json.gz")
    assert main([*command, "-f", path, option, "prod"]) == 2
    assert f"{option} names a live cluster and -f files; leave one of them out" in capsys.readouterr().err


def test_a_folder_is_the_files_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with one file a kind gives the answer of one file with everything."""
    objects = items()
    for kind in {item["kind"] for item in objects}:
        written(tmp_path / "cluster" / f"{kind}.json", [item for item in objects if item["kind"] == kind])
    (tmp_path / "cluster" / "values.yaml").write_text("replicas: 3\n")
    (tmp_path / "cluster" / "notes.txt").write_text("not read")
    assert main(asked(("plan", "-o", "json"), str(CASE / "cluster.json.gz"))) == 0
    whole = capsys.readouterr().out
    assert main(asked(("plan", "-o", "json"), str(tmp_path / "cluster"))) == 0
    shown = capsys.readouterr()
    assert shown.out == whole
    assert f"passed over {tmp_path / 'cluster' / 'values.yaml'} (no Kubernetes object in it)" in shown.err


def test_a_folder_beside_a_capture_changes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`-f capture -f manifests/`: a manifest wins over the captured object."""
    pools = [item for item in items() if item["kind"] == "NodePool"]
    closed = {"budgets": [{"nodes": "0"}]}
    for pool in pools:
        manifest = {key: pool[key] for key in ("apiVersion", "kind")} | {
            "metadata": {"name": pool["metadata"]["name"]},
            "spec": {**pool["spec"], "disruption": {**pool["spec"]["disruption"], **closed}},
        }
        folder = tmp_path / "manifests"
        folder.mkdir(exist_ok=True)
        (folder / f"{pool['metadata']['name']}.yaml").write_text(json.dumps(manifest))
    assert main(asked(("plan", "-o", "json"), str(CASE / "cluster.json.gz"), str(tmp_path / "manifests"))) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {row["allowed"] for row in answer["budgets"]} == {0}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("broken.json", '{"kind": "List", "items": [', "it is not JSON"),
        ("half.yaml", "kind: Secret\napiVersion: v1\n---\nno: kind\n", "there is no kind"),
    ],
)
def test_a_broken_file_in_a_folder_is_not_passed_over(
    tmp_path: Path, name: str, content: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is cut off may have held the pods, so the command stops and names it."""
    written(tmp_path / "folder" / "a.json", items())
    (tmp_path / "folder" / name).write_text(content)
    assert main(asked(("plan",), str(tmp_path / "folder"))) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / "folder" / name) in error
    assert said in error


def test_an_empty_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without manifests is said in one sentence."""
    assert main(["plan", "-f", str(tmp_path)]) == 2
    assert f"{tmp_path}: the folder holds no *.yaml, *.yml, *.json" in capsys.readouterr().err


@pytest.mark.parametrize("command", [*ASKING, ("rollout", "status"), ("tune",)], ids=" ".join)
def test_a_list_of_other_kinds_is_refused(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An input without any node and pool says what it holds instead, not that prices or pools are missing."""
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    pods = [item for item in items() if item["kind"] == "Pod"]
    for number, objects in enumerate(([other], pods)):
        path = written(tmp_path / f"{number}.json", objects)
        assert main([*command, "-f", path]) == 2
        shown = capsys.readouterr()
        assert not shown.out
        sentence = shown.err.strip().splitlines()[-1]
        what = f"{len(objects)} {objects[0]['kind']}"
        assert sentence.startswith(f"dovetail: the input has no Node and no NodePool, only {what}; capture all of it")


def test_tuning_needs_a_node_pool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`tune` on a capture without NodePools refuses at once, as `whatif` does: there is nothing to set."""
    path = written(tmp_path / "c.json", [item for item in items() if item["kind"] != "NodePool"])
    assert main(asked(("tune",), path)) == 2
    assert "the input has no NodePool" in capsys.readouterr().err.strip().splitlines()[-1]


def test_a_web_page_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page that a proxy returned instead of the objects is called that."""
    path = tmp_path / "cluster.json"
    path.write_text("<!DOCTYPE html><html><body>403 Forbidden</body></html>")
    assert main(["plan", "-f", str(path)]) == 2
    assert "it is a web page or XML" in capsys.readouterr().err
