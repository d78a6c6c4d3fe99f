"""Grids over seeds: what is rejected, what the front is, and that every engine returns the same document."""

from pathlib import Path

import msgspec
import pytest

from dovetail.api.findings import InputError
from dovetail.cli.main import main
from dovetail.sim.scenarios.scenario import load_scenario
from dovetail.sim.sweep import PolicyStanding, choose, front_of, load_grid, tasks_of
from dovetail.sim.weighing import score

SCENARIO = load_scenario("issue-7146")
MINUTES = 60 * 10**9
GRID = (
    "{base: both, vary: {consolidationGracePeriod: [Never, 10m], consolidationSavingsThreshold: [0, 0.01]}, seeds: 2}"
)


def _grid(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1, 2]", "one map"),
        ("{bas: both}", "not a field of a grid"),
        ("{base: nobody, vary: {consolidateAfter: [1m]}}", "has the policies"),
        ("{base: both}", "vary is missing"),
        ("{base: both, vary: {weight: [1]}}", "can't be varied"),
        ("{base: both, vary: {consolidateAfter: 5m}}", "list of values"),
        ("{base: both, vary: {consolidateAfter: [soon]}}", "soon"),
        ("{base: both, vary: {consolidationSavingsThreshold: [-1]}}", "0 or more"),
        ("{base: both, vary: {consolidateAfter: [1m]}, seeds: 0}", "from 1 to 1000"),
        ("{base: both, vary: {consolidateAfter: [1m, 2m, 3m, 4m, 5m, 6m, 7m, 8m, 9m, 10m, 11m]}, seeds: 1000}", "runs"),
        ("{base: both, vary: {", "line 2"),
    ],
)
def test_bad_grids_get_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    """An unusable grid is rejected in one sentence with the file and what to write."""
    path = _grid(tmp_path, text)
    with pytest.raises(InputError, match=says) as caught:
        load_grid(path, SCENARIO)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_every_combination_runs_on_every_seed(tmp_path: Path) -> None:
    """Two by two values on two seeds are eight runs, each with its own policy and seed."""
    tasks = tasks_of(SCENARIO, load_grid(_grid(tmp_path, GRID), SCENARIO), None)
    assert len(tasks) == 8
    assert len({(policy.name, seed) for _, policy, seed, _ in tasks}) == 8
    assert tasks[0][1].disruption["consolidationGracePeriod"] == "Never"


def _standing(name: str, cost: float, moved: float) -> PolicyStanding:
    return PolicyStanding(policy=name, cost=cost, cost_spread=0, disrupted=moved, disrupted_spread=0, violations=0)


def test_the_front_holds_what_nothing_beats() -> None:
    """A policy that another equals in one figure and beats in the other is not on the front; equal ones are."""
    table = [
        _standing("a", 1, 9),
        _standing("b", 2, 5),
        _standing("c", 2, 6),
        _standing("d", 3, 1),
        _standing("e", 3, 1),
    ]
    assert [one.policy for one in front_of(table)] == ["a", "b", "d", "e"]


def test_the_choice_lies_nearest_to_the_corner() -> None:
    """From a front, the policy nearest to least cost and least disruption is chosen; of two, the calmer one."""
    assert choose([_standing("a", 1, 100), _standing("b", 1.1, 20), _standing("c", 2, 0)]).policy == "b"
    assert choose([_standing("a", 1, 100), _standing("z", 2, 0)]).policy == "z"


def test_a_dearer_policy_that_is_calmer_only_by_chance_is_not_recommended() -> None:
    """If one is ten percent more expensive and calmer by less than the variance, the cheaper one is chosen."""

    def standing(name: str, costs: list[float], moves: list[int]) -> PolicyStanding:
        scores = tuple(score(cost, moved) for cost, moved in zip(costs, moves, strict=True))
        return PolicyStanding(
            policy=name,
            cost=sum(costs) / len(costs),
            cost_spread=0,
            disrupted=sum(moves) / len(moves),
            disrupted_spread=0,
            violations=0,
            scores=scores,
        )

    cheap = standing("karpenter-1.15", [10.0, 10.0, 10.0, 10.0], [100, 180, 60, 140])
    calm = standing("calm", [11.0, 11.0, 11.0, 11.0], [50, 40, 160, 20])
    assert calm.score < cheap.score
    assert choose([cheap, calm]) is cheap
    calmer = standing("calmer", [11.0, 11.0, 11.0, 11.0], [10, 20, 5, 10])
    assert choose([cheap, calmer]) is calmer


def test_budgets_and_settings_can_be_varied(tmp_path: Path) -> None:
    """Every field of spec.disruption and every setting can be in a grid; values are validated like a pool's."""
    text = """{base: both, seeds: 1, vary: {budgets: [[{nodes: "10%"}], [{nodes: "5", reasons: [Empty]}]],
    batchMaximum: [1, 100]}}"""
    tasks = tasks_of(SCENARIO, load_grid(_grid(tmp_path, text), SCENARIO), None)
    names = [policy.name for _, policy, _, _ in tasks]
    assert names[0] == "budgets=10%,batchMaximum=1"
    assert len(set(names)) == 4
    assert {policy.settings.batch_maximum for _, policy, _, _ in tasks} == {1, 100}
    assert tasks[0][1].disruption["budgets"] == [{"nodes": "10%"}]
    for wrong, says in (
        ("budgets: [[{nodes: '200%'}]]", "vary.budgets"),
        ("batchMaximum: [-1]", "whole number"),
        ("batchmaximum: [1]", "did you mean batchMaximum"),
        ("consolidationPolicy: [Sometimes]", "vary.consolidationPolicy"),
    ):
        with pytest.raises(InputError, match=says):
            load_grid(_grid(tmp_path, f"{{base: both, vary: {{{wrong}}}}}"), SCENARIO)


def test_the_command_prints_the_same_bytes_twice(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """`sweep -o json` depends only on its inputs."""
    grid = _grid(tmp_path, "{base: both, vary: {consolidateAfter: [15s, 5m]}, seeds: 1}")
    arguments = ["sweep", "issue-7146", "--grid", str(grid), "--until", "2m", "-o", "json"]
    assert main(arguments) == 0
    first = capfdbinary.readouterr().out
    assert main(arguments) == 0
    assert capfdbinary.readouterr().out == first
    tree = msgspec.json.decode(first)
    assert tree["scenario"] == "issue-7146"
    assert {run["policy"] for run in tree["runs"]} == {"after=15s", "after=5m", "karpenter-1.15"}
    assert tree["recommended"] in tree["front"]
    assert "Rule: least bill plus $0.02 for each pod restart" in tree["why"]


@pytest.mark.parametrize(
    "engine", ["slurm", "dask://", "dask://here", "dask://:1", "dask://a b:1", "dask://here:port", "dask://127.0.0.1:1"]
)
def test_an_engine_that_is_not_there_is_said(tmp_path: Path, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown engine, or a scheduler that does not answer, fails with one sentence and exit status 2."""
    if engine.endswith(":1"):
        pytest.importorskip("distributed")
    grid = _grid(tmp_path, "{base: both, vary: {consolidateAfter: [15s]}, seeds: 1}")
    assert main(["sweep", "issue-7146", "--grid", str(grid), "--engine", engine]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
