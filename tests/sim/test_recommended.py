"""The built-in policy `recommended`: a base for policies, settings and grids, and its content."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from dovetail.api.crds.definitions import crds
from dovetail.api.findings import InputError
from dovetail.api.policy import FILLED_IN, effective_policy
from dovetail.api.settings import load_settings, settings_of
from dovetail.cli.main import main
from dovetail.model import names
from dovetail.model.money import parse_money
from dovetail.model.objects import NodePool
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, RECOMMENDED, RECOMMENDED_DISRUPTION, Search, SteeringMode
from dovetail.model.timing.duration import MINUTE
from dovetail.sim.replay import default_policies
from dovetail.sim.scenarios.scenario import load_policy, load_scenario


def _pool(**disruption: object) -> NodePool:
    return msgspec.convert({"metadata": {"name": "web"}, "spec": {"disruption": disruption}}, NodePool, strict=False)


def test_a_policy_may_start_from_it(tmp_path: Path) -> None:
    """A policy's own fields win; all others are the recommended ones."""
    file = tmp_path / "policy.yaml"
    file.write_text("{base: recommended, settings: {steering: Off}, disruption: {disruptionPrice: 0.5}}")
    policy = load_policy("mine", file)
    assert policy.settings.search is Search.VALUE
    assert policy.settings.steering is SteeringMode.OFF
    assert policy.disruption == {**RECOMMENDED_DISRUPTION, "disruptionPrice": 0.5}


def test_the_settings_of_run_may_start_from_it(tmp_path: Path) -> None:
    """Pools without values get the price of a restart; what a pool sets itself holds beside it."""
    file = tmp_path / "settings.yaml"
    file.write_text("base: recommended\nbatchMaximum: 7\n")
    settings = load_settings(file)
    assert settings.batch_maximum == 7
    assert settings.replacements_max == RECOMMENDED.replacements_max == 4
    silent, loud = effective_policy(_pool(), settings), effective_policy(_pool(disruptionPrice=1), settings)
    for policy in (silent, loud):
        assert policy.restart_price is not None
        assert policy.restart_price.text == RECOMMENDED_DISRUPTION["restartPrice"]
        assert policy.origins["restartPrice"] == "settings"
        assert policy.savings_threshold == 0
    assert silent.disruption_price is None
    assert (loud.disruption_price, loud.origins["disruptionPrice"]) == (parse_money(1), "spec")
    assert effective_policy(_pool(), DOVETAIL).restart_price is None


def test_nothing_in_it_is_dollars() -> None:
    """Its only price is a time, so it means the same at any price level; the old dollars are off."""
    price = effective_policy(_pool(), RECOMMENDED).restart_price
    assert price is not None
    assert (price.dollars, price.time, price.per_cpu) == (0, 10 * MINUTE, True)
    assert set(RECOMMENDED_DISRUPTION) == {"restartPrice"}
    assert RECOMMENDED.pool_defaults == tuple(RECOMMENDED_DISRUPTION.items())
    assert RECOMMENDED.waste_floor == RECOMMENDED.quiet_before_haste == 0
    assert RECOMMENDED.launch_price == 10 * MINUTE


def test_rules_that_only_it_switches_on() -> None:
    """Each is a named setting, off by default."""
    rules = ("preferences_open_nodes", "asks_the_scheduler", "evictions_side_by_side", "jobs_wait")
    assert [getattr(RECOMMENDED, name) for name in rules] == [False, True, True, True]
    assert [getattr(DOVETAIL, name) for name in rules] == [True, False, False, False]


@pytest.mark.parametrize(
    ("disruption", "annotation", "threshold", "origin"),
    [
        ({}, None, 0, "default"),
        ({"consolidationSavingsThreshold": 0.01}, None, 0, "spec"),
        ({"consolidationSavingsThreshold": 0.011}, None, 0.011, "spec"),
        ({"consolidationSavingsThreshold": 0}, None, 0, "spec"),
        ({"consolidationSavingsThreshold": 0.01}, "consolidationSavingsThreshold: 0.01", 0.01, "annotation"),
    ],
    ids=["nothing", "what the CRD fills in", "another value", "none", "the annotation says so"],
)
def test_what_the_crd_fills_in_is_nobodys_word(
    disruption: dict[str, float], annotation: str | None, threshold: float, origin: str
) -> None:
    """With Dovetail's CRD every pool has 0.01; the recommended settings treat that as not set."""
    pool = _pool(**disruption)
    if annotation is not None:
        meta = msgspec.structs.replace(pool.metadata, annotations={names.POLICY_ANNOTATION: annotation})
        pool = msgspec.structs.replace(pool, metadata=meta)
    policy = effective_policy(pool, replace(RECOMMENDED))
    assert policy.savings_threshold == parse_money(threshold)
    assert policy.origins["consolidationSavingsThreshold"] == origin
    assert (
        effective_policy(_pool(consolidationSavingsThreshold=0.01), DOVETAIL).origins["consolidationSavingsThreshold"]
        == "spec"
    )


def test_what_counts_as_filled_in_is_what_the_crd_fills_in() -> None:
    """The table has the CRD's defaults for every field that the settings can give to pools."""
    (tree,) = [tree for tree in crds() if tree["metadata"]["name"] == "nodepools.karpenter.sh"]
    schema = tree["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields = schema["disruption"]["properties"]
    given = ("consolidateAfter", "consolidationGracePeriod", "consolidationSavingsThreshold", "disruptionPrice")
    assert {key: fields[key]["default"] for key in given if "default" in fields[key]} == FILLED_IN


@pytest.mark.parametrize(
    ("tree", "base", "words"),
    [
        ({"base": "best"}, DOVETAIL, "base is .*best.*; write recommended"),
        ({"base": "recommended"}, KARPENTER_1_15, "goes with the profile dovetail"),
        ({"poolDefaults": {"budgets": []}}, DOVETAIL, "there is no field in poolDefaults"),
        ({"poolDefaults": {"disruptionPrice": "much"}}, DOVETAIL, "poolDefaults.disruptionPrice"),
        ({"poolDefaults": 3}, DOVETAIL, "write a map"),
        ({"wasteFloor": -1}, DOVETAIL, "write dollars such as 0.01"),
    ],
)
def test_what_can_not_be_a_base(tree: dict[str, object], base: object, words: str) -> None:
    """Each mistake is one sentence."""
    with pytest.raises(InputError, match=words):
        settings_of(tree, base)  # type: ignore[arg-type]


def test_its_name_is_known_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The demo's scenario has the policy; `replay`, `simulate` and grids accept it for any scenario."""
    assert [policy.name for policy in load_scenario("issue-7146").policies][-1] == "recommended"
    assert [policy.name for policy in default_policies()] == ["karpenter-1.15", "default", "recommended"]
    assert main(["simulate", "image-roll", "--policy", "recommended", "--until", "5m", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["policies"][0]["policy"] == "recommended"
    grid = tmp_path / "grid.yaml"
    grid.write_text("{base: recommended, vary: {consolidateAfter: [30s]}, seeds: 1}")
    assert main(["sweep", "image-roll", "--grid", str(grid), "--until", "2m", "-o", "json"]) == 0
