"""What kubectl users expect: a plugin, completion, `-o`, `--watch`, "did you mean", colour only on a terminal."""

import json
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from dovetail.cli.main import COMMANDS, build_parser, main
from dovetail.cli.names import bare_name
from dovetail.cli.output import _painted
from dovetail.cli.planning import plan as plan_command
from dovetail.cli.reference.completion import SHELLS, commands, script
from tests.cli.test_plan_command import _write
from tests.support.design_world import Town, kind

ROOT = Path(__file__).parents[2]


def _town() -> Town:
    town = Town(kind("m", "0.20"))
    town.pool()
    town.node("idle", "m")
    return town


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_command_and_option(shell: str) -> None:
    """Completion is generated from the parsers and offers every command and option."""
    text = script(shell)
    for entry in commands():
        assert entry.name in text
        for option in entry.options:
            for word in option.words:
                assert (word if shell != "fish" else word.lstrip("-")) in text
    assert [entry.name for entry in commands()] == [entry.name for entry in COMMANDS]


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_scripts_can_be_read_by_their_shell(shell: str, tmp_path: Path) -> None:
    """`bash -n` and the other shells' checks accept the scripts; missing shells are ignored."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    file = tmp_path / "completion"
    file.write_text(script(shell))
    done = subprocess.run([shell, "-n", str(file)], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_bash_completes(tmp_path: Path) -> None:
    """Bash completes commands, options and values."""
    file = tmp_path / "completion"
    file.write_text(script("bash"))

    def completed(*words: str) -> set[str]:
        line = " ".join(f"'{word}'" for word in words)
        body = f'source {file}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _dovetail; echo "${{COMPREPLY[@]}}"'
        return set(subprocess.run(["bash", "-c", body], capture_output=True, check=True, text=True).stdout.split())

    assert completed("dovetail", "bl") == {"blockers"}
    assert "--to-end" in completed("dovetail", "plan", "--to")
    assert completed("dovetail", "plan", "-o", "j") == {"json"}
    assert "karpenter-1.15" in completed("dovetail", "plan", "--compare", "k")


def test_the_plugin_is_on_the_path_and_in_the_krew_manifest() -> None:
    """`kubectl dovetail` finds a program named kubectl-dovetail."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-dovetail"] == scripts["dovetail"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plam"], "there is no command plam; did you mean plan?"),
        (["frobnicate"], "there is no command frobnicate; 'dovetail --help' lists them"),
        (["plan", "--every-metod"], "did you mean --every-method?"),
        (["explain", "node/idel"], 'there is no node "idel"; did you mean idle?'),
        (["explain", "--pool", "defalt"], 'there is no NodePool "defalt"; did you mean default?'),
        (["explain", "idle", "--all"], "not both"),
    ],
)
def test_did_you_mean(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A typo is answered with the most similar name."""
    options = _write(_town(), tmp_path) if arguments[0] == "explain" else []
    assert main([*arguments, *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "name"),
    [("node/a", "a"), ("nodes/a", "a"), ("no/a", "a"), ("a", "a"), ("nodepool/web", "web"), ("NODE/a", "a")],
)
def test_kinds_in_front_of_names(word: str, name: str) -> None:
    """Commands accept `node/NAME`, as kubectl prints it."""
    assert bare_name(word) == name


def test_watch_prints_a_plan_when_it_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unchanged plan is printed once; a changed one is printed again."""
    monkeypatch.setattr(plan_command, "WATCH_SECONDS", 0.0)
    words = ["plan", *_write(_town(), tmp_path), "--watch"]
    args = build_parser(words).parse_args(words)
    assert plan_command._watch(args, rounds=2) == 0
    assert capsys.readouterr().out.count("deleteEmpty idle") == 1
    looks = iter([_town(), _changed()])

    def load(args: object) -> object:
        town = next(looks)
        from dovetail.decide.question import Question

        return Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)

    monkeypatch.setattr(plan_command, "load_live_question", load)
    assert plan_command._watch(args, rounds=2) == 0
    out = capsys.readouterr().out
    assert "deleteEmpty idle" in out
    assert "Nothing would be done now." in out


def _changed() -> Town:
    town = _town()
    town.pod("busy", "idle", cpu="3000m")
    return town


def test_watch_needs_something_to_look_at_again(capsys: pytest.CaptureFixture[str]) -> None:
    """--watch rejects standard input, which can be read only once."""
    assert main(["plan", "-f", "-", "--watch"]) == 2
    assert "--watch" in capsys.readouterr().err


def test_colour_says_nothing_that_the_words_do_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Output has no colour codes unless it goes to a terminal; there, the text is the same."""
    assert main(["explain", "idle", *_write(_town(), tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    painted = _painted("  STOP  pdb  it can't")
    assert painted == "  \x1b[31mSTOP\x1b[0m  pdb  it can't"
    assert _painted("NODE  POOL  CPU").startswith("\x1b[1m")
    assert _painted("a pod that never stops") == "a pod that never stops"


def test_yaml_is_the_json(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`-o yaml` works wherever `-o json` does."""
    import yaml

    options = _write(_town(), tmp_path)
    for words in (["blockers"], ["explain", "idle"], ["explain", "--all"]):
        assert main([*words, *options, "-o", "json"]) == 0
        tree = json.loads(capsysbinary.readouterr().out)
        assert main([*words, *options, "-o", "yaml"]) == 0
        assert yaml.safe_load(capsysbinary.readouterr().out) == tree
