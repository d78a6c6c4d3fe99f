"""The node table says what the rules say one by one, whatever nodes came, went or changed, and at any time."""

import random
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.pod_windows import read_pod_window
from dovetail.decide.facts.cost import UNIT
from dovetail.decide.facts.drainability import PdbVeto, Protection
from dovetail.decide.facts.node_facts import NodeFacts, odd_spans
from dovetail.decide.facts.vetoes import Vetoes
from dovetail.decide.gates import table as module
from dovetail.decide.gates.candidates import OWN_RULES, RULES, Chains, pod_rules, rules_before_pods
from dovetail.decide.gates.gate_results import GateContext
from dovetail.decide.gates.open_gates import OpenGates
from dovetail.decide.gates.table import NOBODY, GateTable, in_cost_order
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import NodeClaim, NodeClaimSpec, NodePool, ObjectMeta, Pod
from dovetail.model.policies.controls import RepairRule
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from tests.support.design_world import stamp
from tests.support.gates import gates_of
from tests.support.nodes import NOW, facts_of, minutes
from tests.support.sizes import size

MINUTE = 60 * 10**9
HOUR = 60 * MINUTE
POD = Pod(metadata=ObjectMeta(name="p", namespace="d"))
NAMES = "abcdefghijklmnopqrstuvwx"
LABELS = {names.CAPACITY_TYPE: "on-demand", names.ZONE: "a"}
REPAIR = RepairRule(index=0, condition="Ready", status="False", lasting=4 * MINUTE)
_POLICIES = (
    DisruptionPolicy(consolidate_after=5 * MINUTE, grace_period=10 * MINUTE),
    DisruptionPolicy(consolidate_after=5 * MINUTE, min_node_age=20 * MINUTE, repair=(REPAIR,)),
    DisruptionPolicy(static=True),
    None,
)


class _SomeVetoes(Vetoes):
    """Refuses the pods of the nodes with some names."""

    def __init__(self, refused: str) -> None:
        self._refused = refused

    @property
    def any(self) -> bool:
        return bool(self._refused)

    def of(self, facts: NodeFacts) -> PdbVeto | None:
        return PdbVeto(pod=POD, pdbs=("d/a",)) if facts.name in self._refused else None

    def among(self, nodes: Any) -> Any:
        return {name: veto for name, facts in nodes.items() if (veto := self.of(facts)) is not None}


def _facts(name: str, chance: random.Random, **more: Any) -> NodeFacts:
    policy = chance.choice(_POLICIES)
    claim = NodeClaim(
        metadata=ObjectMeta(creation_timestamp=NOW - minutes(chance.randrange(40))),
        spec=NodeClaimSpec(termination_grace_period=chance.choice([None, "5m"])),
    )
    ends = chance.choice([None, None, NOW + minutes(12)])
    windows = ("0 16 * * *; 1h", "40 15 * * *; 10m", "odd")
    asked = [(POD, read_pod_window(chance.choice(windows))) for _ in range(chance.choice([0, 0, 0, 1, 2]))]
    parts: dict[str, Any] = {
        "name": name,
        "policy": policy,
        "pool": None if policy is None else NodePool(),
        "pool_name": chance.choice(["web", "db"]),
        "labels": LABELS,
        "claim": claim,
        "pods": chance.randrange(3),
        "last_event": NOW + minutes(chance.randrange(-12, 12)),
        "expire_after": chance.choice([None, HOUR]),
        "marked": chance.choice(["", "", "", "leaves"]),
        "protection": None if ends is None else Protection(pod=POD, value="x", until=ends),
        "pod_windows": tuple(asked),
        "drifted_since": chance.choice([None, NOW]),
        "unreadable": chance.choice([(), (), ("odd",)]),
        **more,
    }
    return facts_of(**parts)


def _check(table: GateTable, gates: GateContext, awaited: dict[str, list[Pod]]) -> None:
    """Compare all answers of a table with those of each node's own rules."""
    now, nodes = gates.now, table.nodes
    assert [facts.name for facts in nodes] == sorted(facts.name for facts in nodes)
    assert dict(table.by_name) == {facts.name: facts for facts in nodes}
    opened = OpenGates(table, gates, lambda: awaited)
    ends = []
    for facts in nodes:
        chains = gates_of(facts, gates)
        if table.by_name[facts.name] is facts:
            found = Chains(table.by_name, gates, dict, opened.closed_for)
            assert {method: found.of(facts.name, method) for method in chains} == chains
        own = [(method, None if chain.open else chain.results[-1].gate.value) for method, chain in chains.items()]
        waited = facts.name in awaited
        ends.append([(m, "nominated" if waited and g is None and m is Method.EMPTY else g) for m, g in own])
    assert [list(end) for end in opened.ends()] == ends
    for method in Method:
        passing = [facts.name for facts, end in zip(nodes, ends, strict=True) if (method, None) in end]
        assert [facts.name for facts in opened.of(method)] == passing, method
    found = table.members()
    for pool in ("web", "db"):
        counted = [facts for facts in nodes if facts.pool_name == pool and facts.counted]
        members = found.get(pool, NOBODY)
        assert (list(members.nodes), members.count) == (counted, len(counted))
        assert members.used == sum(facts.used for facts in counted)
    hidden = [facts for facts in nodes if facts.hidden_until and now < facts.hidden_until]
    assert table.closed_to_moved_pods(now) == (hidden if gates.settings.rules.grace_period else [])
    pools = {facts.pool_name for facts in nodes if facts.drifted or facts.will_drift}
    assert (set(table.claimed_pools()), set(table.rolling_pools())) == ({facts.pool_name for facts in nodes}, pools)
    assert table.unreadable_values() == [text for facts in nodes for text in facts.unreadable]
    assert table.in_cost_order(range(len(nodes)), gates.settings, now) == in_cost_order(nodes, gates.settings, now)


@pytest.mark.parametrize("settings", [DOVETAIL], ids=["dovetail"])
@given(st.integers(0, 2**32), st.sampled_from([0, 16]))
def test_every_round(settings: Settings, seed: int, few: int) -> None:
    """Tables that follow the nodes, and earlier ones, answer as the rules do; the clock may be set back."""
    chance, table, earlier = random.Random(seed), GateTable(), []
    here: dict[str, NodeFacts] = {}
    for _ in range(6):
        gone = [facts for facts in here.values() if chance.random() < chance.choice([0, 0.1, 0.6])]
        gone_names = {facts.name for facts in gone}
        free = [name for name in NAMES if name not in here or name in gone_names]
        new = [_facts(name, chance) for name in free if chance.random() < 0.3]
        here = {name: facts for name, facts in here.items() if name not in gone_names}
        here |= {facts.name: facts for facts in new}
        gates = GateContext(
            settings=settings,
            now=NOW + minutes(chance.choice([0, 5, 10, 15, 30, 35])),
            managed_pools=chance.choice([None, None, frozenset({"web"})]),
        )
        table = table.edited(gone, new, gates) if chance.random() < 0.8 else table.renewed(here.values(), gates)
        assert set(map(id, table.nodes)) == set(map(id, here.values()))
        asked = GateContext(
            settings=settings,
            now=gates.now,
            managed_pools=gates.managed_pools,
            vetoes=_SomeVetoes("".join(chance.sample(NAMES, chance.choice([0, 8])))),
            buffered=dict.fromkeys(chance.sample(NAMES, 2), 1),
        )
        awaited = {name: [POD] for name in chance.sample(NAMES, 3)}
        earlier.append((table, asked, awaited))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_FEW", few)
            for entry in earlier:
                _check(*entry)


@pytest.mark.parametrize("method", list(Method))
def test_columns_are_in_the_order_of_each_method(method: Method) -> None:
    """The first closed column of a method is the first closed gate of its chain."""
    for asks in (False, True):
        own = OWN_RULES.get(method, ())
        places = [
            RULES.index(rule) for rule in (*rules_before_pods(method), *pod_rules(method, empty_asks_pdbs=asks), *own)
        ]
        assert places == sorted(places)


def _soonest(now: datetime = NOW, settings: Settings = DOVETAIL, **facts: Any) -> list[float]:
    """Return one node's times of change in minutes, in the order in which they come."""
    node, found = facts_of(**{"last_event": None, **facts}), []
    table = GateTable()
    while True:
        table = table.renewed([node], GateContext(settings=settings, now=now))
        when = table.next_change(now)
        if when is None or len(found) == 8:
            return found
        found.append((when - NOW) / timedelta(minutes=1))
        now = when


def test_when_time_changes_something() -> None:
    """Each timer and the expiry is a time of change; a node without a policy has none."""
    born = NodeClaim(metadata=ObjectMeta(creation_timestamp=NOW - minutes(15)))
    paused = NodePool(metadata=ObjectMeta(annotations={names.PAUSED: stamp(NOW + minutes(7))}))
    policy = DisruptionPolicy(consolidate_after=MINUTE, grace_period=2 * MINUTE, min_node_age=20 * MINUTE)
    all_of_them: dict[str, Any] = {
        "policy": policy,
        "last_event": NOW,
        "protection": Protection(pod=POD, value="x", until=NOW + minutes(3)),
        "claim": born,
        "pool": paused,
        "expire_after": HOUR,
    }
    assert _soonest(**all_of_them) == [1, 2, 3, 5, 7, 45]
    assert _soonest(**{**all_of_them, "policy": None}) == []
    assert _soonest(**{**all_of_them, "expire_after": None}) == [1, 2, 3, 5, 7]
    assert _soonest(**{**all_of_them, "protection": Protection(pod=POD, value="true")}) == [1, 2, 5, 7, 45]
    forever = NodePool(metadata=ObjectMeta(annotations={names.PAUSED: "true"}))
    assert _soonest(**{**all_of_them, "pool": forever}) == [1, 2, 3, 5, 45]
    assert _soonest(**{**all_of_them, "claim": NodeClaim()}) == [1, 2, 3, 7]
    assert _soonest(policy=DisruptionPolicy()) == []
    assert _soonest(settings=KARPENTER_1_15, **all_of_them) == [1, 2, 3, 5, 7], "Karpenter's own rules: no expiry"


def test_windows_that_recur() -> None:
    """A row with windows holds until the next one opens or closes."""
    windows = tuple((POD, read_pod_window(text)) for text in ("0 16 * * *; 1h", "odd", "0 15 * * *; 40m"))
    assert _soonest(policy=DisruptionPolicy(), pod_windows=windows)[:3] == [10, 30, 90]
    assert _soonest(policy=DisruptionPolicy(), pod_windows=windows, settings=KARPENTER_1_15) == []


def test_a_row_is_computed_only_when_its_facts_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers that end compute no row again."""
    computed: list[str] = []
    real = module._row
    monkeypatch.setattr(module, "_row", lambda facts, gates: computed.append(facts.name) or real(facts, gates))
    chance = random.Random(1)
    one, two, other = (_facts(name, chance, pod_windows=()) for name in "abb")
    table = GateTable().renewed([one, two], GateContext(settings=DOVETAIL, now=NOW))
    for minute in (5, 30, 0):
        table = table.edited([], [], GateContext(settings=DOVETAIL, now=NOW + minutes(minute)))
    assert computed == ["a", "b"]
    table.edited([two], [other], GateContext(settings=DOVETAIL, now=NOW))
    assert computed == ["a", "b", "b"]
    table.edited([], [], GateContext(settings=DOVETAIL, now=NOW, managed_pools=frozenset()))
    assert computed == ["a", "b", "b", "a", "b"]


def test_a_node_and_a_claim_of_one_name() -> None:
    """Both stay when one of them changes; the last one speaks for both, as in `by_name`."""
    chance, gates = random.Random(2), GateContext(settings=DOVETAIL, now=NOW)
    plain: dict[str, Any] = {"policy": _POLICIES[0], "pool": NodePool(), "pod_windows": (), "protection": None}
    one, two, three, other = (
        _facts(name, chance, marked=mark, **plain) for name, mark in zip("aaab", ("", "x", "", ""), strict=True)
    )
    table = GateTable().renewed([one, two, other], gates)
    assert table.nodes == (one, two, other)
    ends = OpenGates(table, gates, dict).ends()
    assert ends[0] == ends[1] != ends[2]
    table = table.edited([two], [three], gates)
    assert [facts for facts in table.nodes if facts in (one, three)] == [one, three]


@pytest.mark.parametrize(
    ("life", "grace", "odd"),
    [
        (None, None, []),
        ("Never", "1h", []),
        ("1h", "Never", [("terminationGracePeriod", "Never")]),
        ("soon", "1h", [("expireAfter", "soon")]),
        ("soon", "late", [("expireAfter", "soon"), ("terminationGracePeriod", "late")]),
        ("", None, [("expireAfter", "")]),
    ],
)
def test_durations_that_cannot_be_read(life: str | None, grace: str | None, odd: list[tuple[str, str]]) -> None:
    """Only expireAfter may be Never; a duration that is not there is not unreadable."""
    claim = NodeClaim(spec=NodeClaimSpec(expire_after=life, termination_grace_period=grace))
    assert odd_spans(claim) == odd
    gates = GateContext(settings=DOVETAIL, now=NOW)
    table = GateTable().renewed([facts_of(claim=claim), facts_of(name="z", claim=None)], gates)
    assert table.may_be_noted(1) is bool(odd)
    assert table.may_be_noted(2), "a NodeClaim without a row has to be looked at"


_COSTS = (0, UNIT, UNIT, 2 * UNIT, -UNIT, 3 * UNIT, UNIT // 3, 10**30, -(10**30))
_LIVES = (None, HOUR, HOUR, 720 * HOUR, HOUR + 1, 0, 1, 10**30)


def _ageing(name: str, chance: random.Random) -> NodeFacts:
    created = NOW - timedelta(microseconds=chance.choice([0, 1, 10**6, 60 * 10**6, 3000 * 10**6]))
    claim = NodeClaim(metadata=ObjectMeta(creation_timestamp=created))
    return facts_of(name=name, claim=claim, pod_costs=chance.choice(_COSTS), expire_after=chance.choice(_LIVES))


def test_costs_as_sorted() -> None:
    """For any costs and lifetimes, nodes are ordered by exact cost, rounded once, and by name."""
    for seed in range(size(test=60, ci=200, long=2000)):
        chance = random.Random(seed)
        nodes = [_ageing(f"n{number}", chance) for number in range(chance.choice([1, 50]))]
        table = GateTable().renewed(nodes, GateContext(settings=DOVETAIL, now=NOW))
        for minute in (0, 1.5, 30, 70):
            now = NOW + minutes(minute)
            rows = sorted(chance.sample(range(len(nodes)), len(nodes) // 2 + 1))
            found = table.in_cost_order(rows, DOVETAIL, now)
            plain = sorted((table.nodes[row] for row in rows), key=lambda f: (f.disruption_cost_float(now), f.name))
            assert [facts.name for facts in found] == [facts.name for facts in plain], seed
