import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.cli.main import main
from tests.paths import SHARED, needs_shared
from tests.support.crd_rules import budget, disruption, pool


def write(folder: Path, name: str, *trees: Any) -> Path:
    """Write manifests into one file."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump_all(trees))
    return file


def test_a_good_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A valid manifest prints nothing and returns status 0."""
    assert main(["validate", str(write(tmp_path, "a.yaml", pool()))]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "checked 1 object in 1 file: 0 errors, 0 warnings\n"


def test_one_line_for_each_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finding has file, object, severity, field, value, problem and remedy; the exit status is 1."""
    file = write(tmp_path, "a.yaml", disruption(consolidateAfter="1d", budgets=[{"nodes": 5}]))
    assert main(["validate", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0] == (
        f'{file}: NodePool/default: error: spec.disruption.consolidateAfter ("1d"): has the wrong form; '
        "write a duration such as 30s, 5m or 1h30m, or Never"
    )
    assert 'warning: spec.disruption.budgets[0].nodes (5): was read as "5"' in lines[1]


def test_warnings_alone_leave_it_0(tmp_path: Path) -> None:
    """Warnings alone leave the exit status at 0."""
    assert main(["validate", str(write(tmp_path, "a.yaml", budget(nodes=5)))]) == 0


def test_a_folder_is_searched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder is searched for *.yaml, *.yml and *.json at any depth in a stable order; other kinds are ignored."""
    write(tmp_path, "b.yml", pool(), {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}})
    write(tmp_path, "deep/er/a.yaml", pool(weight=0))
    (tmp_path / "c.json").write_text(json.dumps({"kind": "List", "items": [pool(weight=101)]}))
    (tmp_path / "notes.txt").write_text("not a manifest")
    assert main(["validate", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert [Path(line.split(": ")[0]).name for line in shown.out.splitlines()] == ["c.json", "a.yaml"]
    assert "checked 3 objects in 3 files, 1 object of other kinds passed over: 2 errors" in shown.err


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A dash reads standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(pool(weight=0)).encode())))
    assert main(["validate", "-"]) == 1
    assert capsys.readouterr().out.startswith("standard input: NodePool/default: error: spec.weight (0)")


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """-o json is one document with every finding."""
    file = write(tmp_path, "a.yaml", pool(weight=0))
    assert main(["validate", str(file), "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["checked"] == 1
    assert document["findings"] == [
        {
            "file": str(file),
            "object": "NodePool/default",
            "where": "document 1",
            "severity": "error",
            "path": "spec.weight",
            "value": "0",
            "message": "is out of bounds",
            "remedy": "write 1 to 100",
        }
    ]


def test_a_key_given_twice_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A duplicate key is a warning, because Kubernetes silently uses the last one."""
    file = write(tmp_path, "a.yaml", pool())
    file.write_text(file.read_text() + "kind: NodePool\n")
    assert main(["validate", str(file)]) == 0
    assert "warning: kind (line " in capsys.readouterr().out


def test_control_characters_are_written_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names and keys with control characters can't break a line or colour the terminal."""
    tree = disruption(**{"bad\nkey\x1b[31m": 1}, consolidateAfter="x\ny") | {"metadata": {"name": "a\nb"}}
    assert main(["validate", str(write(tmp_path, "a.yaml", tree))]) == 1
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert all(line.startswith(str(tmp_path)) for line in shown.splitlines())


def bomb() -> bytes:
    """Write a YAML bomb."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return ("\n".join(lines) + "\n").encode() + yaml.safe_dump(pool()).encode()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (json.dumps(pool()).encode()[:-30], "cut off"),
        (bytes(range(256)) * 100, "binary"),
        (b"\xff" * 5000, "not"),
        (bomb(), "YAML bomb"),
        (
            b'{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "spec": ' + b'{"a":' * 9000 + b"1" + b"}" * 9001,
            "too deep",
        ),
        (b'{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "\xff"}}', "UTF-8"),
        (b"", "empty"),
        (b"# nothing\n", "no Kubernetes object"),
        (b"just words", "no Kubernetes object"),
        (b"kind: NodePool\n  apiVersion: broken\n", "not YAML"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_cant_be_read_is_one_sentence_and_2(
    content: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Truncated files, garbage, a YAML bomb and an empty file each fail with one sentence and exit status 2."""
    file = tmp_path / "a.yaml"
    file.write_bytes(content)
    assert main(["validate", str(file)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"dovetail: {file}: ")
    assert sentence in said


def test_a_huge_file_is_refused_without_reading_it_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of 100 MB is rejected without reading all of it."""
    file = tmp_path / "huge.yaml"
    with file.open("wb") as stream:
        stream.truncate(100_000_000)
    assert main(["validate", str(file)]) == 2
    assert "larger than 16 MiB" in capsys.readouterr().err


def test_one_unreadable_file_doesnt_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other files of the folder are still checked; the exit status is 2."""
    write(tmp_path, "bad.yaml", pool(weight=0))
    (tmp_path / "broken.yaml").write_text("[1")
    assert main(["validate", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert "bad.yaml: NodePool/default: error" in shown.out
    assert "broken.yaml" in shown.err


def test_a_folder_without_manifests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without manifests is reported."""
    assert main(["validate", str(tmp_path)]) == 2
    assert "holds no *.yaml" in capsys.readouterr().err


def test_a_file_that_isnt_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file is reported."""
    assert main(["validate", str(tmp_path / "missing.yaml")]) == 2
    assert "no such file" in capsys.readouterr().err


@needs_shared
def test_a_folder_of_real_manifests(capsys: pytest.CaptureFixture[str]) -> None:
    """Every finding takes one line; files that Karpenter accepts have no errors."""
    assert main(["validate", str(SHARED / "manifests" / "docs")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines
    refused = {Path(line.split(": ")[0]).stem for line in lines if ": error: " in line}
    assert not [name for name in refused if name.endswith(("-valid", "-valid-unknown-fields"))]
    assert [name for name in refused if name.endswith("-invalid")]
