"""Standard streams that are closed, full, interrupted, or belong to a terminal that only has ASCII."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.cli.main import main
from dovetail.cli.output import print_bytes

SAY = "import sys; from dovetail.cli.main import main; sys.exit(main(sys.argv[1:]))"
ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}


def shell(line: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a line of shell in which $D is dovetail."""
    program = f'D() {{ "{sys.executable}" -c "{SAY}" "$@"; }}; {line}'
    variables = {**os.environ, **environment}
    return subprocess.run(["bash", "-c", program], capture_output=True, cwd=folder, env=variables, check=False)


def test_a_closed_output_is_said(tmp_path: Path) -> None:
    """If standard output is closed, the command fails with one sentence and exit status 2."""
    found = shell("D crds >&-", tmp_path)
    assert found.returncode == 2
    assert found.stderr.startswith(b"dovetail: standard output is closed")
    assert found.stderr.count(b"\n") == 1


def test_notes_never_land_in_the_answer(tmp_path: Path) -> None:
    """If standard error is closed, messages are lost and standard output still holds only the result."""
    (tmp_path / "pod.json").write_text('{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}')
    found = shell("D budgets -f pod.json -o json 2>&-", tmp_path)
    assert found.returncode == 0
    assert found.stdout.startswith(b"{")
    assert b"note:" not in found.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_said(tmp_path: Path) -> None:
    """A failed write is reported as such, and only once at exit."""
    found = shell("D crds >/dev/full", tmp_path)
    assert found.returncode == 2
    assert (
        found.stderr
        == b"dovetail: the answer can't be written (no space left on device); make room, or write it elsewhere\n"
    )


def test_a_terminal_that_knows_ascii_only(tmp_path: Path) -> None:
    """An ASCII terminal replaces letters in text; pages are unchanged."""
    (tmp_path / "grid.yaml").write_text("base: both\nvary: {consolidateAfter: [15s]}\nseeds: 1\n")
    words = shell("D sweep issue-7146 --grid grid.yaml --until 1m", tmp_path, **ASCII)
    assert words.returncode == 0, words.stderr
    assert b"Traceback" not in words.stderr  # a slow machine may print its progress
    assert b"? 0.0" in words.stdout
    page = shell("D sweep issue-7146 --grid grid.yaml --until 1m -o html", tmp_path, **ASCII)
    assert page.returncode == 0, page.stderr
    assert b"Traceback" not in page.stderr
    assert "±" in page.stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "--bogus"], "dovetail plan: --bogus is not known here; see 'dovetail plan --help'"),
        (["plan", "--\x1b[31mred"], r"dovetail plan: --\x1b[31mred is not known here; see 'dovetail plan --help'"),
        (["plan", "-f", ""], "dovetail: : the name of a file is empty; give a file, or - for standard input"),
        (["plan", "-f", "missing"], "dovetail: missing: it can't be read (no such file or directory); check its name"),
        (
            ["plan", "-f", "x", "--now", "9999-12-31T23:59:59-12:00"],
            'dovetail: --now is "9999-12-31T23:59:59-12:00"; write a time between 1970 and 9000',
        ),
        (["explain"], "dovetail: which node? write its name first: dovetail explain NODE -f FILE"),
        (["explain", "-f", "/"], "dovetail: which node? write its name first: dovetail explain NODE -f FILE"),
    ],
)
def test_each_mistake_has_a_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each mistake prints one line that says what to do, nothing on standard output, and exit status 2."""
    assert main(arguments) == 2
    assert capsys.readouterr() == ("", f"{said}\n")


def test_output_that_takes_only_text_gets_text() -> None:
    """A Python caller can pass a text stream as the output; documents and pages are written to it."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_bytes("é\n".encode())
    assert out.getvalue() == "é\n"
