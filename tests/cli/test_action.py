"""The GitHub Action: its scripts, run as its steps run them, with a GitHub of the test's own."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cli.test_diff_command import CASE, pool
from tests.paths import ROOT

ACTION: Final = yaml.safe_load((ROOT / "action.yml").read_text())
SCRIPTS: Final = ROOT / "deploy" / "action"


def review(folder: Path, **inputs: str) -> tuple[dict[str, str], str, str]:
    """Run the step that reviews; return its outputs, the comment's text, and what it printed."""
    output = folder / "output"
    output.write_text("")
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        **{f"DOVETAIL_{key.upper()}": value for key, value in inputs.items()},
    }
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, str(SCRIPTS / "review.sh")], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    pairs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return pairs, (folder / "dovetail-review.md").read_text(), done.stdout


def manifest(folder: Path, **labels: str) -> str:
    """Write a changed NodePool of the captured cluster."""
    path = folder / "pool.yaml"
    path.write_text(yaml.safe_dump(pool(**labels)))
    return str(path)


CAPTURE: Final = {"capture": str(CASE / "cluster.json.gz"), "catalog": str(CASE / "catalog.json.gz")}


@pytest.mark.parametrize(("fail_on", "status"), [("error", "0"), ("error,drift", "1"), ("", "0")])
def test_a_change_is_reviewed(tmp_path: Path, fail_on: str, status: str) -> None:
    """The comment says what drifts; the check fails by what the input names, after the comment was made."""
    outputs, body, _ = review(tmp_path, change=manifest(tmp_path, team="a"), fail_on=fail_on, name="prod", **CAPTURE)
    assert outputs["status"] == status
    assert int(outputs["drift"]) > 0
    assert body.startswith("## Dovetail: prod\n")
    assert "spec.template.metadata.labels" in body
    assert (tmp_path / "summary").read_text() == body


def test_findings_stand_beside_their_lines(tmp_path: Path) -> None:
    """A field that would be refused becomes an annotation at its line, and the check fails."""
    tree = pool()
    tree["spec"]["disruption"] = {"consolidateAfter": "1d"}
    path = tmp_path / "pool.yaml"
    path.write_text(yaml.safe_dump(tree))
    line = path.read_text().splitlines().index("    consolidateAfter: 1d") + 1
    outputs, _, printed = review(tmp_path, change=f"\n  {path}\n", fail_on="error", **CAPTURE)
    assert outputs["status"] == "1"
    assert f"::error file={path},line={line},title=NodePool/" in printed


def test_a_file_that_is_not_yaml_is_annotated_at_its_line(tmp_path: Path) -> None:
    """The line is the one at which reading it fails."""
    path = tmp_path / "pool.yaml"
    path.write_text("kind: NodePool\n  metadata: [\n")
    _, _, printed = review(tmp_path, change=str(path), **CAPTURE)
    assert f"::error file={path},line=2,title=dovetail validate::" in printed


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, "give one of the inputs capture, recording and context"),
        ({"capture": "a", "context": "b"}, "give one of the inputs"),
        ({"capture": "no-such-file.json"}, "no-such-file.json"),
        ({**CAPTURE, "change": " \n"}, "names no manifests"),
        ({**CAPTURE, "change": "no-such-folder"}, "no-such-folder"),
    ],
)
def test_wrong_inputs(tmp_path: Path, inputs: dict[str, str], said: str) -> None:
    """The comment and an annotation say what is wrong, and the check fails."""
    outputs, body, printed = review(tmp_path, **{"change": manifest(tmp_path, team="a"), **inputs})
    assert outputs == {"status": "2", "drift": ""}
    assert said in body
    assert "::error title=Dovetail::" in printed


def test_no_input_is_read_as_shell() -> None:
    """Inputs reach the scripts as variables only: an expression in a script would run what a pull request says."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        used = {value.split("inputs.")[1].split(" ")[0] for value in step["env"].values() if "inputs." in value}
        assert used <= ACTION["inputs"].keys()
    for script in ("review.sh", "comment.py"):
        assert any(f"deploy/action/{script}" in step["run"] for step in ACTION["runs"]["steps"])


# ---------------------------------------------------------------- the comment


class GitHub(ThreadingHTTPServer):
    """Keeps the comments of one pull request."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.refuses = False
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: GitHub

    def _answer(self, status: int, tree: Any) -> None:
        body = json.dumps(tree).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        page = int(self.path.split("page=")[-1])
        self._answer(200, self.server.comments[(page - 1) * 100 : page * 100])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        if self.server.refuses:
            return self._answer(403, {})
        made = {"id": len(self.server.comments), "body": body, "user": {"type": "Bot"}, "html_url": "http://c"}
        self.server.comments.append(made)
        return self._answer(201, made)

    def do_PATCH(self) -> None:
        found = self.server.comments[int(self.path.rsplit("/", 1)[-1])]
        found["body"] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        self._answer(200, found)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def github() -> Iterator[GitHub]:
    """Yield a GitHub that listens."""
    with GitHub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def comment(folder: Path, github: GitHub, text: str, *, name: str = "", event: dict[str, Any] | None = None) -> str:
    """Run the step that leaves the comment; return what it printed."""
    (folder / "event.json").write_text(json.dumps({"pull_request": {"number": 7}} if event is None else event))
    (folder / "body.md").write_text(text)
    environment = {
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_REPOSITORY": "shop/clusters",
        "GITHUB_API_URL": github.address,
        "GITHUB_TOKEN": "secret",
        "GITHUB_OUTPUT": str(folder / "output"),
        "DOVETAIL_NAME": name,
    }
    command = [sys.executable, str(SCRIPTS / "comment.py"), str(folder / "body.md")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_comment_is_updated(tmp_path: Path, github: GitHub) -> None:
    """A second review changes the first one's comment; another cluster, and a person's copy, stay as they are."""
    copied = {"id": 0, "body": "<!-- dovetail review prod --> mine", "user": {"type": "User"}, "html_url": ""}
    github.comments = [copied, *({"id": n, "body": None, "user": None, "html_url": ""} for n in range(1, 120))]
    comment(tmp_path, github, "first", name="prod")
    comment(tmp_path, github, "other", name="test")
    comment(tmp_path, github, "second", name="prod")
    assert [entry["body"] for entry in github.comments[120:]] == [
        "<!-- dovetail review prod -->\nsecond",
        "<!-- dovetail review test -->\nother",
    ]
    assert copied["body"] == "<!-- dovetail review prod --> mine"
    assert (tmp_path / "output").read_text() == "comment=http://c\n" * 3


def test_a_comment_that_is_too_long_or_not_allowed(tmp_path: Path, github: GitHub) -> None:
    """GitHub's limit is kept; a missing right is a warning, and a push without a pull request leaves no comment."""
    comment(tmp_path, github, "x" * 100_000)
    assert len(github.comments[0]["body"]) < 65_536
    github.refuses, github.comments = True, []
    assert "::warning" in comment(tmp_path, github, "text")
    assert "no pull request" in comment(tmp_path, github, "text", event={"ref": "main"})
