"""Metrics that are read off the last round: age, money and rolls."""

from dataclasses import replace as settings_replace
from datetime import timedelta
from typing import Any, cast

from msgspec.structs import replace

from dovetail.api.commitments import read_commitments
from dovetail.api.roll_request import RollRequest, write_request
from dovetail.live.observability.metrics import Metrics
from dovetail.model import names
from tests.support.design_world import NOW, Town, kind

HOUR = timedelta(hours=1)


class _Engine:
    """Has told one round, and runs two commands."""

    def __init__(self, result: Any) -> None:
        self.told_round = result

    def command_ages(self) -> dict[tuple[str, str], tuple[int, float]]:
        return {("replaceDrifted", "draining"): (2, 90.0)}


def _values(town: Town) -> dict[tuple[str, ...], float]:
    metrics = Metrics()
    metrics.rounds.engine = cast("Any", _Engine(town.round()))
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()) if value)): sample.value
        for family in metrics.rounds.collect()
        for sample in family.samples
    }


def _town(budget: str) -> Town:
    town = Town(kind("m", "0.20"))
    request = write_request(RollRequest(before=NOW - HOUR / 2, requested=NOW - HOUR / 2))
    annotations = {names.ROLL: request}
    town.pool(disruption={"budgets": [{"nodes": budget}], "consolidateAfter": "Never"}, annotations=annotations)
    for name in ("a0", "a1"):
        town.node(name, "m", zone="a")
        town.fill(name, 1)
    return town


def test_a_roll_that_waits() -> None:
    """Its nodes, its end, and how long the oldest has waited for the budget."""
    found = _values(_town("0"))
    prefix = "karpenter_voluntary_disruption"
    assert found[f"{prefix}_oldest_backlog_age_seconds", "budget", "default", "drifted"] == 1800
    assert found[f"{prefix}_candidates_remaining", "budget", "default", "drifted"] == 2
    assert found["dovetail_rollout_nodes", "request", "default", "waiting"] == 2
    assert found["dovetail_rollout_expected_end_timestamp_seconds", "request", "default"] == float("inf")
    assert found["dovetail_commands_by_action", "replaceDrifted", "draining"] == 2
    assert found["dovetail_command_age_seconds", "replaceDrifted", "draining"] == 90
    ends = _values(_town("1"))["dovetail_rollout_expected_end_timestamp_seconds", "request", "default"]
    assert NOW.timestamp() < ends < (NOW + HOUR).timestamp()


def test_money_that_a_gate_holds_back() -> None:
    """The price of nodes that no other reason wants, by the gate that keeps them; what waits to be replaced is none."""
    town = _town("1")
    pool = town.pools["default"]
    town.pools["default"] = replace(pool, metadata=replace(pool.metadata, annotations={}))
    found = {key: value for key, value in _values(town).items() if "upper_bound" in key[0]}
    assert sum(found.values()) == 0.4
    assert not any("upper_bound" in key[0] for key in _values(_town("1")))


def test_what_is_paid_and_how_much_of_each_commitment_is_used() -> None:
    """Two of three machines are reserved and a plan is half used: the bill and both, in their units."""
    commitments = [
        {"name": "ri", "kind": "ReservedInstances", "instanceTypes": ["m"], "count": 1},
        {"name": "units", "kind": "ReservedInstances", "families": ["other"], "count": 8},
        {"name": "sp", "kind": "SavingsPlan", "hourly": "0.2", "rates": "50%"},
    ]
    town = _town("0")
    town.settings = settings_replace(town.settings, commitments=read_commitments(commitments, "commitments"))
    found = _values(town)
    assert found["dovetail_bill_dollars_per_hour", "committed"] == 0.2
    assert found["dovetail_bill_dollars_per_hour", "uncovered"] == 0
    assert found["dovetail_commitment_used", "ri", "machines"] == 1
    assert found["dovetail_commitment_available", "units", "units"] == 8
    assert found["dovetail_commitment_used", "units", "units"] == 0
    assert found["dovetail_commitment_available", "sp", "dollars_per_hour"] == 0.2
    assert found["dovetail_commitment_used", "sp", "dollars_per_hour"] == 0.1
    plain = _values(_town("0"))
    assert plain["dovetail_bill_dollars_per_hour", "uncovered"] == 0.4
    assert not any("commitment" in key[0] for key in plain)


def test_without_a_round_there_is_nothing() -> None:
    """A controller that has not decided yet has the metrics, without values."""
    assert not [sample for family in Metrics().rounds.collect() for sample in family.samples]
