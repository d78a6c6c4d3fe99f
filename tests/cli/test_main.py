import gc
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail import __version__
from dovetail.api.findings import InputError
from dovetail.cli import main as command_line
from dovetail.cli.main import COMMANDS, GROUPS, CommandEntry, main
from tests.paths import ROOT
from tests.support.golden_cases import DATA


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the version and nothing else."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dovetail {__version__}\n"


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    """Without arguments and with --help, Dovetail lists its commands and examples."""
    assert main([]) == 0
    bare = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == bare
    assert "examples:" in bare
    assert "validate" in bare


def test_help_begins_with_the_first_hour(capsys: pytest.CaptureFixture[str]) -> None:
    """The overview is one screen, the first hour first; `help all` lists every command, `help X` explains one."""
    main([])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 50
    titles = [line for line in lines if line.endswith((":", "?")) or line.startswith("run:")]
    assert [title.split(":")[0] for title in titles][:4] == ["the first hour", "look", "try", "run"]
    first = lines[lines.index("the first hour:") + 1 :][:5]
    assert [line.split()[0] for line in first] == ["demo", "doctor", "plan", "explain", "whatif"]
    listed = {line.split()[0] for line in lines if line.startswith("  ")}
    assert not listed & {"place", "crds", "catalog", "replay"}
    assert main(["help", "all"]) == 0
    every = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert {entry.name for entry in COMMANDS} <= every
    assert {entry.group for entry in COMMANDS} <= GROUPS.keys()
    assert main(["help", "crds"]) == 0
    assert "usage: dovetail crds" in capsys.readouterr().out
    assert main(["help", "frobnicate"]) == 2


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_that_is_there_has_help_with_examples(
    entry: CommandEntry, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command has a help text; a command that this version lacks is unknown."""
    status = main([entry.name, "--help"])
    shown = capsys.readouterr()
    if find_spec(f"dovetail.cli.{entry.module}") is not None:
        assert status == 0
        assert f"usage: dovetail {entry.name}" in shown.out
        assert "example" in shown.out
    else:
        assert status == 2


@pytest.mark.parametrize(
    "arguments", [["frobnicate"], ["--frobnicate"], ["validate"], ["validate", "--frobnicate", "x"]]
)
def test_wrong_usage_is_one_sentence_and_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage prints one sentence without the usage text or a traceback, with exit status 2."""
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert "--help" in shown.err


def failing(problem: BaseException) -> Any:
    """Build a command that fails."""

    def run(_: Any) -> int:
        raise problem

    def register(subparsers: Any) -> None:
        subparsers.add_parser("crds").set_defaults(run=run)

    return SimpleNamespace(register=register)


@pytest.mark.parametrize(
    ("problem", "status", "sentence"),
    [
        (InputError("cluster.json: it is empty"), 2, "dovetail: cluster.json: it is empty\n"),
        (KeyboardInterrupt(), 130, ""),
        (MemoryError(), 2, "dovetail: not enough memory for this input\n"),
        (ZeroDivisionError("two\nlines"), 2, "dovetail: a fault in dovetail (ZeroDivisionError: two lines)"),
    ],
)
def test_failures_are_one_sentence(
    problem: BaseException,
    status: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every failure has its exit status and at most one line, never a traceback."""
    monkeypatch.delenv("DOVETAIL_DEBUG", raising=False)
    monkeypatch.setattr(command_line.importlib, "import_module", lambda _: failing(problem))
    assert main(["crds"]) == status
    shown = capsys.readouterr().err
    assert shown.startswith(sentence)
    assert len(shown.splitlines()) <= 1


def test_a_fault_shows_where_it_is_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """DOVETAIL_DEBUG shows the traceback."""
    monkeypatch.setenv("DOVETAIL_DEBUG", "1")
    monkeypatch.setattr(command_line.importlib, "import_module", lambda _: failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["crds"])


def program(*arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    """Start the command in its own process."""
    return subprocess.Popen([sys.executable, "-m", "dovetail.cli.main", *arguments], cwd=ROOT, **more)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    """`dovetail crds | head -1` prints nothing on standard error."""
    reading, writing = os.pipe()
    os.close(reading)
    with program("crds", stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        _, said = process.communicate(timeout=60)
    assert said == b""
    assert process.returncode == 141


def test_the_start_is_light() -> None:
    """--version and the table of commands import none of the heavy libraries."""
    code = (
        "import sys\nfrom dovetail.cli.main import main\nmain(['--version'])\nmain(['--help'])\n"
        "heavy = {'numpy', 'rich', 'aiohttp', 'yaml', 'msgspec', 'asyncio', 'prometheus_client'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == "[]\n"


def test_every_command_that_is_there_is_documented() -> None:
    """docs/cli.md has a section for each command."""
    text = (ROOT / "docs" / "cli.md").read_text()
    there = [entry.name for entry in COMMANDS if find_spec(f"dovetail.cli.{entry.module}") is not None]
    assert [name for name in there if f"`dovetail {name}" not in text] == []


def test_the_table_is_the_contract() -> None:
    """The table has every command of the contract."""
    contract = [
        "demo",
        "plan",
        "place",
        "explain",
        "budgets",
        "validate",
        "snapshot",
        "simulate",
        "sweep",
        "run",
        "hold",
        "release",
        "crds",
        "blockers",
        "whatif",
        "replay",
        "catalog",
    ]
    names = [entry.name for entry in COMMANDS]
    assert [name for name in contract if name not in names] == []
    assert len(names) == len(set(names))


def test_the_crds_are_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`dovetail crds` prints two definitions that kubectl can read."""
    import yaml

    assert main(["crds"]) == 0
    names = [crd["metadata"]["name"] for crd in yaml.safe_load_all(capsys.readouterr().out)]
    assert names == ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh"]


def test_a_command_in_a_process_that_goes_on_leaves_nothing_frozen(capsys: pytest.CaptureFixture[str]) -> None:
    """What a command loaded can be freed afterwards; what the caller froze stays frozen."""
    case = DATA / "045"
    asked = ["plan", "-f", str(case / "cluster.json.gz"), "--catalog", str(case / "catalog.json.gz")]
    gc.unfreeze()
    assert main(asked) == 0
    assert gc.get_freeze_count() == 0
    gc.freeze()
    own = gc.get_freeze_count()
    assert main(asked) == 0
    assert gc.get_freeze_count() >= own
    gc.unfreeze()
