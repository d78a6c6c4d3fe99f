"""What gates hold back: `dovetail blockers` and the controller's metric say the same dollars."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from dovetail.decide.question import Question
from dovetail.live.observability.held_back_meter import HeldBackMeter
from dovetail.live.observability.metrics import Metrics
from dovetail.model import names
from dovetail.model.money import as_float, parse_money
from dovetail.model.objects import PodDisruptionBudget
from dovetail.model.settings import DOVETAIL, RECOMMENDED, Settings
from dovetail.plan.blocking.blockers import blocked, blockers_document
from tests.support.design_world import Town, kind
from tests.support.golden_cases import golden_cases
from tests.support.sizes import size

Figures = dict[tuple[str, str], float]


class _Engine:
    """Has decided so many rounds on one question."""

    is_synced, acts, observe = True, False, True

    def __init__(self, question: Question) -> None:
        self._question, self.rounds = question, 1

    def question(self) -> Question:
        return self._question


class _Clock:
    """Stands still until it is told to go on; each look at it takes a second if `slow`."""

    def __init__(self) -> None:
        self.now, self.slow = 100.0, 0.0

    def __call__(self) -> float:
        self.now += self.slow
        return self.now


def _measured(question: Question) -> Figures:
    """Return what the metric says once the meter has taken all its steps."""
    metrics, clock, engine = Metrics(), _Clock(), cast("Any", _Engine(question))
    meter = HeldBackMeter(gauge=metrics.held_back, clock=clock)
    while meter.is_due(engine):
        meter.step(engine)
    return _shown(metrics)


def _shown(metrics: Metrics) -> Figures:
    return {
        (sample.labels["nodepool"], sample.labels["gate"]): sample.value
        for family in metrics.held_back.collect()
        for sample in family.samples
    }


def _agree(question: Question) -> Iterator[tuple[str, str]]:
    """Compare the metric with `blockers`; yield the blockers that have a figure of their own in the metric."""
    measured, found = _measured(question), blocked(question)
    document = blockers_document(question, found)["heldBack"]
    told = {(row["nodePool"] or "", row["gate"]): as_float(parse_money(row["savingsPerHour"])) for row in document}
    assert measured == told
    pools = {node.metadata.name: node.metadata.labels.get(names.NODEPOOL, "") for node in question.cluster.nodes}
    for gate in {entry.gate for entry in found.blockers}:
        alike = [entry for entry in found.blockers if entry.gate == gate and entry.nodes]
        rows = {pool for pool, of in measured if of == gate}
        for entry in alike:
            mine = entry.name if entry.kind == "NodePool" else pools.get(entry.example, "")
            mine = mine if (mine, gate) in measured else ""
            sole = entry.kind in ("NodePool", "Settings") or (len(alike) == 1 and rows == {mine} and entry.alone)
            if sole and (mine, gate) in measured:
                assert measured[mine, gate] == as_float(entry.savings), (entry.kind, entry.name, gate)
                yield entry.kind, gate


@pytest.mark.parametrize("settings", [DOVETAIL, RECOMMENDED], ids=["dovetail", "recommended"])
def test_on_clusters_that_karpenter_answered(settings: Settings) -> None:
    """The metric has the rows of `blockers -o json`, and each blocker that a row is about has the row's dollars."""
    compared: list[tuple[str, str]] = []
    for case in golden_cases()[:: size(test=12, ci=6, long=1)]:
        question = Question(cluster=case.cluster, catalogue=case.catalogue, settings=settings, now=case.now)
        compared += _agree(question)
    assert compared


def _town(**disruption: Any) -> Town:
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0, **disruption})
    for name in ("a", "b"):
        town.node(name, "m")
    town.pod("web-a", "a", cpu="500m", labels={"app": "web"})
    return town


def _paused_town() -> Town:
    town = _town()
    town.pools["default"].metadata.annotations[names.PAUSED] = "true"
    return town


def _pdb_town() -> Town:
    town = _town()
    tree = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1},
        "status": {"expectedPods": 1, "currentHealthy": 1},
    }
    town.others.append(msgspec.convert(tree, PodDisruptionBudget, strict=False))
    town.pod("rest", "b", cpu="2", annotations={names.DO_NOT_DISRUPT: "true"})
    return town


@pytest.mark.parametrize(
    ("town", "row", "dollars"),
    [
        (_town(consolidateAfter="Never"), ("default", "consolidate-after"), 0.20),
        (_town(budgets=[{"nodes": "0"}]), ("default", "budget"), 0.20),
        (_paused_town(), ("default", "paused"), 0.20),
        (_pdb_town(), ("default", "pdb"), 0.20),
    ],
    ids=["consolidateAfter", "budget", "paused", "pdb"],
)
def test_the_dollars_of_a_gate(town: Town, row: tuple[str, str], dollars: float) -> None:
    """One node of two is not needed: whatever holds it back holds back its price."""
    question = Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)
    assert list(_agree(question))
    assert _measured(question)[row] == pytest.approx(dollars)


def test_the_meter_rests() -> None:
    """After each step it rests nineteen times as long as that took, and it begins again once a minute at most."""
    town = _town(consolidateAfter="Never")
    question = Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)
    metrics, clock, engine = Metrics(), _Clock(), cast("Any", _Engine(question))
    meter = HeldBackMeter(gauge=metrics.held_back, clock=clock)
    clock.slow = 0.5
    meter.step(engine)
    clock.slow = 0.0
    ended = clock.now
    assert not meter.is_due(engine)
    clock.now = ended + 9.4
    assert not meter.is_due(engine)
    clock.now = ended + 9.6
    assert meter.is_due(engine)
    assert not _shown(metrics)
    meter.step(engine)
    assert _shown(metrics)
    engine.rounds = 2
    assert not meter.is_due(engine)
    clock.now = ended + 60.0
    assert meter.is_due(engine)
    engine.rounds = 1
    assert not meter.is_due(engine)


def test_a_gate_that_opened_is_no_longer_shown() -> None:
    """Rows of a series replace those of the series before it."""
    town = _town(consolidateAfter="Never")
    question = Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)
    metrics, clock, engine = Metrics(), _Clock(), cast("Any", _Engine(question))
    meter = HeldBackMeter(gauge=metrics.held_back, clock=clock)
    while meter.is_due(engine):
        meter.step(engine)
    assert set(_shown(metrics)) == {("default", "consolidate-after")}
    opened = _town(consolidateAfter="0s")
    engine._question = replace(question, cluster=opened.cluster)
    engine.rounds, clock.now = 2, clock.now + 60
    while meter.is_due(engine):
        meter.step(engine)
    assert ("default", "consolidate-after") not in _shown(metrics)
