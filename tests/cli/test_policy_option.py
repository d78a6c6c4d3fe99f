"""`--policy recommended` on the commands that plan, and what is said where it does not belong."""

import json
from pathlib import Path

import pytest

from dovetail.cli.main import main
from tests.support.golden_cases import DATA

CASE = DATA / "003"
INPUTS = ("-f", str(CASE / "cluster.json.gz"), "--catalog", str(CASE / "catalog.json.gz"))
COMMANDS = (("plan",), ("explain", "--all"), ("blockers",))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_it_is_the_same_as_base_in_the_settings(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The option and `base: recommended` in a settings file give the same bytes, which name the policy."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("base: recommended\n")
    assert main([*command, *INPUTS, "-o", "json", "--policy", "recommended"]) == 0
    by_option = capsys.readouterr().out
    assert main([*command, *INPUTS, "-o", "json", "--settings", str(settings)]) == 0
    assert capsys.readouterr().out == by_option
    assert json.loads(by_option)["policy"] == "recommended"


@pytest.mark.parametrize("command", [*COMMANDS, ("place",), ("budgets",)], ids=" ".join)
def test_every_planning_command_takes_it(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The option is there, and a policy that does not exist is one sentence."""
    assert main([*command, *INPUTS, "--policy", "recommended"]) == 0
    capsys.readouterr()
    assert main([*command, *INPUTS, "--policy", "recomended"]) == 2
    assert capsys.readouterr().err == 'dovetail: --policy is "recomended"; write recommended, or leave it out\n'


def test_words_name_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    """The head of a plan says whose rules decided."""
    assert main(["plan", *INPUTS, "--policy", "recommended"]) == 0
    assert ", policy recommended: " in capsys.readouterr().out
    assert main(["plan", *INPUTS]) == 0
    assert ", profile dovetail: " in capsys.readouterr().out


def test_recommended_is_not_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    """`--profile recommended` says which option takes it."""
    assert main(["plan", *INPUTS, "--profile", "recommended"]) == 2
    assert "recommended is a policy, not a profile; write --policy recommended" in capsys.readouterr().err


def test_it_does_not_go_with_karpenters_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """A profile of Karpenter's has no policy of ours."""
    assert main(["plan", *INPUTS, "--policy", "recommended", "--profile", "karpenter-1.15"]) == 2
    assert "--policy recommended goes with the profile dovetail" in capsys.readouterr().err


def test_a_settings_file_wins_over_the_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys of the file override the policy's, as they override a profile's."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("paused: true\n")
    assert main(["plan", *INPUTS, "-o", "json", "--policy", "recommended", "--settings", str(settings)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["actions"] == []
    assert found["policy"] == "recommended"


def test_plans_of_two_policies_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """`--compare recommended` names the policy, and no rule of Karpenter's is given as the reason."""
    assert main(["plan", *INPUTS, "--compare", "recommended", "-o", "json"]) == 0
    compared = json.loads(capsys.readouterr().out)["compare"]
    assert compared["profile"] == "recommended"
    assert not any("karpenter" in entry["why"] for entry in compared["nodes"])
