"""Mistakes in a scenario are reported with file, line, problem and remedy, before anything is simulated."""

import gzip
import resource
from pathlib import Path

import pytest

from dovetail.api.findings import InputError
from dovetail.api.policy import READ_MAX, effective_policy
from dovetail.api.reading.documents import MIB, UNPACKED_MAX, read_input
from dovetail.model.objects import BudgetSpec, DisruptionSpec, NodePool, NodePoolSpec, ObjectMeta
from dovetail.model.settings import DOVETAIL
from dovetail.sim.scenarios.scenario import ScenarioError, load_scenario, parse_scenario, shipped

GOOD = """name: x
until: 5m
catalogue: [{name: a, cpu: 2, memory: 4Gi, price: 0.1}]
pools: [{name: p}]
nodes: [{pool: p, type: a, count: 1}]
workloads: [{name: w, replicas: 1, cpu: 100m, memory: 128Mi}]
policies: {k: {profile: karpenter-1.15}}
"""
CASES = [
    ("cpu: 100m", "cpu: abc", "6: workloads[0].cpu: 'abc' is not a quantity"),
    ("cpu: 100m", "cpu: [100m, x]", "6: workloads[0].cpu[1]: 'x' is not a quantity"),
    ("cpu: 100m", "cpu: -1", "6: workloads[0].cpu: -1 is less than nothing"),
    ("memory: 128Mi", "memory: 12XX", "6: workloads[0].memory: '12XX' is not a quantity"),
    ("memory: 4Gi", "memory: zzz", "3: catalogue[0].memory: 'zzz' is not a quantity"),
    ("cpu: 2", "cpu: 0", "3: catalogue[0].cpu: 0 given; write a number from 1"),
    ("price: 0.1", "price: -1", "3: catalogue[0].price: -1.0 given"),
    ("price: 0.1", "price: .nan", "3: catalogue[0].price: nan given"),
    ("type: a", "type: zzz", "5: nodes[0].type: there is no type 'zzz'; write one of: a"),
    ("count: 1", "count: 1000000000", "5: nodes[0].count: 1000000000 given"),
    ("count: 1", "capacityType: dear", "5: nodes[0].capacityType: 'dear' is not a capacity type"),
    ("{name: p}", "{name: p, limits: {cpu: abc}}", "4: pools[0].limits.cpu"),
    ("{name: p}", "{name: p, expireAfter: soon}", "4: pools[0].expireAfter"),
    ("{name: p}", '{name: p, labels: {"a b": c}}', "4: pools[0].labels"),
    ("{name: p}", "{name: p, weight: -4}", "4: pools[0].weight"),
    ("{name: p}", '{name: p, requirements: [{key: "a b", operator: In, values: [x]}]}', "4: pools[0].requirements[0]"),
    ("{name: p}", "{name: p, requirements: [{key: a, operator: Inn}]}", "4: pools[0].requirements[0].operator"),
    ("{name: p}", "{name: p, disruption: {consolidateAfterX: 1m}}", "4: pools[0].disruption.consolidateAfterX"),
    ("{name: p}", "{name: p, disruption: {consolidateAfter: soon}}", "4: pools[0].disruption.consolidateAfter"),
    ("{name: p}", "{name: p, disruption: {budgets: 5}}", "4: pools[0].disruption.budgets"),
    ("[{name: p}]", "[{name: p}, {name: p}]", "4: pools[1].name: there is a pool 'p' already"),
    ("replicas: 1", "replicas: -5", "6: workloads[0].replicas: -5 given"),
    ("replicas: 1", "replicas: []", "6: workloads[0].replicas: the list is empty"),
    ("replicas: 1", "replicas: 100000000", "6: workloads[0].replicas: 100000000 given"),
    ("replicas: 1", "priority: 99999999999999", "6: workloads[0].priority"),
    ("replicas: 1", "pdb: {maxUnavailable: abc}", "6: workloads[0].pdb.maxUnavailable: 'abc' is not an amount"),
    ("replicas: 1", "curve: {low: 1, high: 2, peak: soon}", "6: workloads[0].curve.peak: 'soon' is not a duration"),
    ("replicas: 1", "kind: Job, duration: 1m, every: 0s", "6: workloads[0].every: '0s' never ends"),
    ("replicas: 1", "spread: [{skew: 0}]", "6: workloads[0].spread[0].skew: 0 given"),
    ("profile: karpenter-1.15", "disruption: {foo: 1}", "7: policies.k.disruption.foo"),
    ("until: 5m", "until: 5m\nzones: []", "3: zones: no zone is given"),
    ("until: 5m", "until: 5m\nstart: 9999-12-31T23:59:59Z", "3: start: '9999-12-31T23:59:59Z' is out of reach"),
    ("until: 5m", "until: 5m\ncloud: {spotPrices: {every: x}}", "3: cloud.spotPrices.every: 'x' is not a duration"),
    ("until: 5m", "until: 5m\nsteps: [{every: 0s, scale: {w: 1}}]", "3: steps[0].every: '0s' never ends"),
    ("until: 5m", "until: 5m\nsteps: [{at: 1m, scale: {w: -4}}]", "3: steps[0].scale.w: -4 given"),
    ("until: 5m", "until: 5m\nsteps: [{at: 1m, outOfStock: {type: a, for: soon}}]", "3: steps[0].outOfStock.for"),
    ("until: 5m", "until: 5m\nsteps: [{at: 1m, pool: {name: p, disruption: {budgets: 7}}}]", "3: steps[0].pool"),
    ("until: 5m", "until: 5m\nsteps: [{at: 1m, pool: {name: p}}]", "3: steps[0].pool: nothing changes"),
    ("until: 5m", "until: 5m\nsteps: [{at: 1m, image: {id: i, within: soon}}]", "3: steps[0].image.within"),
]


@pytest.mark.parametrize(("good", "bad", "said"), CASES, ids=[case[1][-40:] for case in CASES])
def test_mistake_is_told_with_its_place(good: str, bad: str, said: str) -> None:
    """A mistake is one sentence that begins with the file and the line."""
    assert good in GOOD
    with pytest.raises(ScenarioError) as told:
        parse_scenario(GOOD.replace(good, bad, 1), "mine.yaml")
    assert str(told.value).startswith(f"mine.yaml:{said}"), str(told.value)


def test_good_ones_stay_good() -> None:
    """A plain file and all shipped files are valid."""
    assert parse_scenario(GOOD, "mine.yaml").name == "x"
    for name in shipped():
        load_scenario(name)


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"a{level}: &a{level} [" + ",".join([f"*a{level - 1}"] * 10) + "]" for level in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a: " + "[" * 100_000, "1: this is nested more than 200 levels deep", id="deep lists"),
        pytest.param(
            "\n".join(" " * i + "a:" for i in range(3000)), "201: this is nested more than 200", id="deep maps"
        ),
        pytest.param(BOMB, "1: its aliases expand to more than 1000000 values", id="aliases"),
        pytest.param("a: &a [*a]", "1: this uses *a, which no complete &anchor defines", id="a cycle"),
    ],
)
def test_yaml_that_would_eat_the_machine_is_refused(text: str, said: str) -> None:
    """Excessive depth, aliases and cycles are rejected before anything is built."""
    with pytest.raises(ScenarioError) as told:
        parse_scenario(text, "mine.yaml")
    assert str(told.value).startswith(f"mine.yaml:{said}")


def test_alias_that_is_used_often_is_fine() -> None:
    """One block can be used several times by alias."""
    text = GOOD.replace(
        "policies: {k: {profile: karpenter-1.15}}", "policies: {k: &k {profile: dovetail}, l: *k, m: *k}"
    )
    assert [policy.name for policy in parse_scenario(text, "mine.yaml").policies] == ["k", "l", "m"]


def test_gzip_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    """A huge scenario is rejected before it fills the memory, with what to do if it is intended."""
    bomb = tmp_path / "bomb.json.gz"
    with gzip.open(bomb, "wb", compresslevel=9) as stream:
        for _ in range(UNPACKED_MAX // MIB + 2):
            stream.write(b" " * MIB)
    assert bomb.stat().st_size < 2 * MIB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"unpacks to more than 512 MiB; .*gunzip.*2048 MiB"):
        read_input(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 * UNPACKED_MAX // 1024
    with pytest.raises(InputError, match="unpacks to more than 16 MiB; split it"):
        read_input(bomb, 16 * MIB)


@pytest.mark.parametrize(("count", "closed"), [(50, False), (51, False), (READ_MAX + 1, True), (10_000, True)])
def test_far_too_many_budgets_are_not_read(count: int, closed: bool) -> None:
    """The CRD allows 50 budgets; thousands count as one that allows nothing, with a message."""
    budgets = tuple(BudgetSpec(nodes="10%", schedule=f"{n % 60} * * * *", duration="10m") for n in range(count))
    pool = NodePool(metadata=ObjectMeta(name="p"), spec=NodePoolSpec(disruption=DisruptionSpec(budgets=budgets)))
    policy = effective_policy(pool, DOVETAIL)
    assert len(policy.budgets) == (1 if closed else count)
    assert (policy.budgets[0].problem is not None) is closed
    assert any("may have at most 50" in text for text in policy.problems) is (count > 50)
