"""The rules of gates 1 to 7 on hand-made facts, at their limits and with their figures (spec 2, 4, 5, 19)."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as change

from dovetail.api.pod_windows import read_pod_window
from dovetail.decide.facts.drainability import PdbVeto, Protection
from dovetail.decide.facts.node_facts import NodeFacts, last_pod_event
from dovetail.decide.facts.vetoes import Vetoes
from dovetail.decide.gates import candidates, method_rules, node_rules
from dovetail.decide.gates.candidates import awaited
from dovetail.decide.gates.gate_results import GateContext, GateRule, passed
from dovetail.decide.gates.open_gates import OpenGates
from dovetail.decide.gates.table import GateTable, moved_pods_until
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import Deployment, Node, NodeClaim, NodePool, ObjectMeta, Pod
from dovetail.model.policies.controls import RepairRule
from dovetail.model.policies.policy import ConsolidationPolicy, DisruptionPolicy
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.model.verdicts import Gate, GateResult
from dovetail.scheduling.pods.surge import Surge
from tests.support.design_world import stamp
from tests.support.gates import gates_of
from tests.support.nodes import NOW, facts_of, minutes

MINUTE = 60 * 10**9
POD = Pod(metadata=ObjectMeta(name="p", namespace="d"))
_REFUSED = PdbVeto(pod=POD, pdbs=("d/a",))
LABELS = {names.CAPACITY_TYPE: "on-demand", names.ZONE: "a"}


def _claim(*conditions: tuple[str, str, datetime | None], **parts: Any) -> NodeClaim:
    said = [
        {"type": kind, "status": status, **({} if at is None else {"lastTransitionTime": stamp(at)})}
        for kind, status, at in conditions
    ]
    tree = {
        "metadata": {
            "name": "c",
            "annotations": parts.pop("annotations", {}),
            "creationTimestamp": parts.pop("born", None),
        },
        "spec": parts.pop("spec", {}),
        "status": {"conditions": said, **parts},
    }
    return msgspec.convert(tree, NodeClaim, strict=False)


def _ask(rule: GateRule, settings: Settings = DOVETAIL, now: datetime = NOW, **facts: Any) -> GateResult:
    more = {key: facts.pop(key) for key in ("managed_pools", "may_surge", "buffered", "vetoes") if key in facts}
    return rule(facts_of(**facts), GateContext(settings=settings, now=now, **more))


class _Veto(Vetoes):
    """The same veto for every node."""

    def __init__(self, veto: PdbVeto | None = _REFUSED) -> None:
        self._veto = veto

    @property
    def any(self) -> bool:
        return self._veto is not None

    def of(self, facts: NodeFacts) -> PdbVeto | None:
        return self._veto

    def among(self, nodes: Mapping[str, NodeFacts]) -> Mapping[str, PdbVeto]:
        return {} if self._veto is None else dict.fromkeys(nodes, self._veto)


def _pool(**annotations: str) -> NodePool:
    return NodePool(metadata=ObjectMeta(name="default", annotations=annotations))


# ---------------------------------------------------------------- the node


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, None),
        ({"managed_pools": frozenset({"default"})}, None),
        ({"managed_pools": frozenset({"other"})}, "NodePool default is only observed"),
        ({"claim": None}, "The node has no NodeClaim"),
        ({"node": None}, "The NodeClaim has no node yet."),
        ({"pool_name": ""}, f"The node has no label {names.NODEPOOL}."),
        ({"pool": None}, "NodePool default does not exist."),
    ],
)
def test_managed(facts: dict[str, Any], said: str | None) -> None:
    """A managed node belongs to a managed pool and has a Node and a NodeClaim."""
    result = _ask(node_rules.managed, **facts)
    assert result.passed is (said is None)
    assert said is None or result.why.startswith(said)


@pytest.mark.parametrize(
    ("rule", "facts", "goes"),
    [
        (node_rules.not_rebooting, {"rebooting": True}, False),
        (node_rules.not_rebooting, {"rebooting": False}, True),
        (node_rules.not_marked, {"marked": "its time has come"}, False),
        (node_rules.not_marked, {"marked": ""}, True),
        (node_rules.initialized, {"initialized": False}, False),
        (node_rules.initialized, {"initialized": True}, True),
        (node_rules.not_nominated, {"nominated": True}, False),
        (node_rules.not_nominated, {"nominated": False}, True),
    ],
)
def test_what_a_node_must_be(rule: GateRule, facts: dict[str, Any], goes: bool) -> None:
    """A candidate is initialized and not rebooting, leaving or nominated."""
    assert _ask(rule, **facts).passed is goes


@pytest.mark.parametrize(
    ("settings", "annotations", "goes", "said"),
    [
        (DOVETAIL, {}, True, "not paused"),
        (DOVETAIL, {names.PAUSED: "true"}, False, "is paused until it is resumed."),
        (DOVETAIL, {names.PAUSED: "true", names.PAUSED_REASON: "x"}, False, "until it is resumed (x)."),
        (DOVETAIL, {names.PAUSED: stamp(NOW + minutes(3))}, False, "is paused for 3m more."),
        (DOVETAIL, {names.PAUSED: stamp(NOW)}, True, "not paused"),
        (replace(DOVETAIL, paused=True), {}, False, "The setting `paused` is on"),
        (replace(KARPENTER_1_15, paused=True), {names.PAUSED: "true"}, True, "knows no pause"),
    ],
)
def test_paused(settings: Settings, annotations: dict[str, str], goes: bool, said: str) -> None:
    """A pause holds its pool until its end; the setting holds all pools; Karpenter's profile ignores both."""
    result = _ask(node_rules.not_paused, settings, pool=_pool(**annotations))
    assert result.passed is goes
    assert said in result.why


@pytest.mark.parametrize(
    ("settings", "node", "claim", "goes"),
    [
        (DOVETAIL, {}, {}, True),
        (DOVETAIL, {names.DO_NOT_DISRUPT: "true"}, {}, False),
        (DOVETAIL, {names.DO_NOT_DISRUPT: "1h"}, {}, True),
        (DOVETAIL, {names.DO_NOT_DISRUPT: "true", names.HOLD: "x"}, {}, True),
        (DOVETAIL, {names.ALWAYS_DO_NOT_DISRUPT: "true", names.HOLD: "x"}, {}, False),
        (DOVETAIL, {names.ALWAYS_DO_NOT_DISRUPT: "no"}, {}, True),
        (DOVETAIL, {}, {names.ALWAYS_DO_NOT_DISRUPT: "true"}, False),
        (KARPENTER_1_15, {names.DO_NOT_DISRUPT: "true", names.HOLD: "x"}, {}, False),
        (KARPENTER_1_15, {names.ALWAYS_DO_NOT_DISRUPT: "true"}, {}, True),
    ],
)
def test_do_not_disrupt_on_a_node(settings: Settings, node: dict[str, str], claim: dict[str, str], goes: bool) -> None:
    """Karpenter's annotation counts unless it is Dovetail's hold; Dovetail's counts on both objects."""
    result = _ask(node_rules.node_may_be_disrupted, settings, annotations=node, claim=_claim(annotations=claim))
    assert result.passed is goes


# ---------------------------------------------------------------- its pods


@pytest.mark.parametrize(
    ("found", "said", "figures"),
    [
        (None, "No pod says", {}),
        (
            Protection(pod=POD, value="true"),
            f"Pod d/p says {names.DO_NOT_DISRUPT}=true.",
            {"pod": "d/p", "value": "true"},
        ),
        (
            Protection(pod=POD, value="1h", until=NOW + minutes(5)),
            "Pod d/p may not be disrupted for 1h from its start: 5m to go.",
            {"pod": "d/p", "value": "1h", "until": stamp(NOW + minutes(5))},
        ),
    ],
)
def test_protected_pods(found: Protection | None, said: str, figures: dict[str, Any]) -> None:
    """The gate names the protected pod and the end of its protection."""
    result = _ask(node_rules.pods_may_be_disrupted, protection=found)
    assert (result.passed, result.figures) == (found is None, figures)
    assert result.why.startswith(said)


@pytest.mark.parametrize(
    ("veto", "figures"),
    [
        (None, {}),
        (PdbVeto(pod=POD, pdbs=("d/a",), allowed=0), {"pod": "d/p", "pdb": "d/a", "disruptionsAllowed": 0}),
        (PdbVeto(pod=POD, pdbs=("d/a", "d/b")), {"pod": "d/p", "pdb": "d/a, d/b"}),
    ],
)
def test_pdbs(veto: PdbVeto | None, figures: dict[str, Any]) -> None:
    """The gate names the PDB that allows nothing, or several PDBs on one pod."""
    result = _ask(node_rules.pdbs_allow, vetoes=_Veto(veto))
    assert (result.passed, result.figures) == (veto is None, figures)


OPEN, LATER, NEVER_OPENS, BROKEN = "0 15 * * *; 1h", "0 16 * * *; 1h", "0 0 30 2 *; 1h", "at noon"


@pytest.mark.parametrize(
    ("windows", "goes", "figures"),
    [
        ([], True, {}),
        ([OPEN], True, {}),
        ([OPEN, LATER], False, {"window": LATER, "opensAt": "2026-05-13T16:00:00Z", "closed": 1}),
        ([LATER, LATER, OPEN], False, {"window": LATER, "opensAt": "2026-05-13T16:00:00Z", "closed": 2}),
        ([NEVER_OPENS], False, {"window": NEVER_OPENS, "opensAt": None, "closed": 1}),
        ([BROKEN], False, {"window": BROKEN}),
    ],
)
def test_windows_of_pods(windows: list[str], goes: bool, figures: dict[str, Any]) -> None:
    """All windows must be open; the gate names the first closed one and its opening; Karpenter has none."""
    entries = tuple((POD, read_pod_window(text)) for text in windows)
    result = _ask(node_rules.pod_windows_open, pod_windows=entries)
    assert result.passed is goes
    assert result.figures == ({} if goes else {"pod": "d/p", **figures})
    if figures.get("opensAt"):
        assert result.why.endswith("which opens at 2026-05-13T16:00:00Z, in 30m.")
    elif "opensAt" in figures:
        assert result.why.endswith("which opens never again.")
    assert _ask(node_rules.pod_windows_open, KARPENTER_1_15, pod_windows=entries).passed


@pytest.mark.parametrize(
    ("problems", "may_surge", "said"),
    [
        ([], False, "No pod needs"),
        ([""], True, "It goes after a rolling update of d/web."),
        (["", ""], True, "It goes after a rolling update of d/web, d/web."),
        ([""], False, "which Dovetail has no right to patch."),
        (["", "it rolls already"], True, "but it rolls already."),
    ],
)
def test_surges(problems: list[str], may_surge: bool, said: str) -> None:
    """Every Deployment that must roll must be able to, and Dovetail must have permission."""
    deployment = Deployment(metadata=ObjectMeta(name="web", namespace="d"))
    surges = tuple((POD, Surge(deployment=deployment, problem=problem)) for problem in problems)
    result = _ask(node_rules.can_surge, surges=surges, may_surge=may_surge)
    assert result.passed is (not problems or (may_surge and not any(problems)))
    assert said in result.why


# ---------------------------------------------------------------- each method's own


@pytest.mark.parametrize(
    ("settings", "pods", "positive", "empty"),
    [
        (DOVETAIL, 0, 0, True),
        (DOVETAIL, 1, 0, False),
        (DOVETAIL, 0, 1, True),
        (KARPENTER_1_15, 1, 0, True),
        (KARPENTER_1_15, 0, 1, False),
    ],
)
def test_what_is_empty(settings: Settings, pods: int, positive: int, empty: bool) -> None:
    """An empty node has no pod that moves; for Karpenter, no pod with a positive cost."""
    assert _ask(method_rules.empty_only, settings, pods=pods, positive_costs=positive).passed is empty
    assert _ask(method_rules.occupied_only, settings, pods=pods, positive_costs=positive).passed is not empty


@pytest.mark.parametrize(("count", "said"), [(1, "1 pod would"), (2, "2 pods would")])
def test_pods_are_counted(count: int, said: str) -> None:
    """The sentence counts pods in words."""
    result = _ask(method_rules.empty_only, pods=count)
    assert said in result.why
    assert result.figures == {"pods": count}


@pytest.mark.parametrize(
    ("policy", "empty", "occupied"),
    [
        (DisruptionPolicy(), True, True),
        (DisruptionPolicy(static=True), False, False),
        (DisruptionPolicy(consolidation_policy=ConsolidationPolicy.WHEN_EMPTY), True, False),
        (DisruptionPolicy(consolidation_policy=ConsolidationPolicy.BALANCED), True, True),
    ],
)
def test_what_a_policy_allows(policy: DisruptionPolicy, empty: bool, occupied: bool) -> None:
    """Static pools allow nothing, and WhenEmpty allows empty nodes only."""
    assert _ask(method_rules.not_static, policy=policy).passed is empty
    assert _ask(method_rules.underutilized_allowed, policy=policy).passed is occupied


@pytest.mark.parametrize(
    ("period", "since", "goes", "said"),
    [
        (None, 60, False, "consolidateAfter Never"),
        (10 * MINUTE, 9, False, "A pod came or went 9m ago; consolidateAfter 10m ends in 1m."),
        (10 * MINUTE, 10, True, "has passed"),
        (10 * MINUTE, None, True, "has passed"),
        (0, 0, True, "has passed"),
    ],
)
def test_consolidate_after(period: int | None, since: int | None, goes: bool, said: str) -> None:
    """The timer consolidateAfter counts from the last pod event and is over at its exact end."""
    event = None if since is None else NOW - minutes(since)
    policy = DisruptionPolicy(consolidate_after=period)
    result = _ask(method_rules.consolidate_after_passed, policy=policy, last_event=event)
    assert result.passed is goes
    assert said in result.why
    for status, ready in (("True", True), ("False", False)):
        claim = _claim((names.CONDITION_CONSOLIDATABLE, status, NOW))
        result = _ask(
            method_rules.consolidate_after_passed, KARPENTER_1_15, policy=policy, last_event=event, claim=claim
        )
        assert result.passed is (ready and period is not None)


@pytest.mark.parametrize(("age", "goes"), [(None, True), (59, False), (60, True), (61, True)])
def test_min_node_age(age: int | None, goes: bool) -> None:
    """A node is old enough at exactly minNodeAge; a node without a creation time is not."""
    claim = _claim(born=None if age is None else stamp(NOW - minutes(age)))
    result = _ask(method_rules.old_enough, policy=DisruptionPolicy(min_node_age=60 * MINUTE), claim=claim)
    assert result.passed is goes
    assert _ask(method_rules.old_enough, claim=claim).passed


@pytest.mark.parametrize(
    ("settings", "period", "since", "goes"),
    [
        (DOVETAIL, None, 1, True),
        (DOVETAIL, 10 * MINUTE, 9, False),
        (DOVETAIL, 10 * MINUTE, 10, True),
        (KARPENTER_1_15, 10 * MINUTE, 9, True),
    ],
)
def test_grace_period(settings: Settings, period: int | None, since: int, goes: bool) -> None:
    """The gate checks the grace period, which is Dovetail's own timer."""
    policy = DisruptionPolicy(grace_period=period)
    result = _ask(method_rules.grace_period_passed, settings, policy=policy, last_event=NOW - minutes(since))
    assert result.passed is goes
    if not goes:
        assert result.why == "A pod came or went 9m ago; its grace period of 10m ends in 1m."


@pytest.mark.parametrize(
    ("facts", "goes", "here", "there"),
    [
        ({}, "", True, True),
        ({"type_known": False}, "Instance type m is not in", False, False),
        ({"type_known": False, "instance_type": ""}, "Instance type (no label) is not in", False, False),
        ({"labels": {names.ZONE: "a"}}, f"The node has no label {names.CAPACITY_TYPE}.", False, False),
        ({"labels": {names.CAPACITY_TYPE: "spot"}}, f"The node has no label {names.ZONE}.", False, False),
        ({"offering_price": None}, "The catalogue has no price for m as on-demand in a.", False, True),
    ],
)
def test_price_known(facts: dict[str, Any], goes: str, here: bool, there: bool) -> None:
    """The gate needs type, capacity type and zone; Karpenter treats a node without a price as free."""
    parts = {"labels": LABELS, **facts}
    result = _ask(method_rules.price_known, **parts)
    assert result.passed is here
    assert here or result.why.startswith(goes)
    assert _ask(method_rules.price_known, KARPENTER_1_15, **parts).passed is there


@pytest.mark.parametrize(
    ("life", "age", "goes"),
    [(None, 60, False), (60 * MINUTE, None, False), (60 * MINUTE, 59, False), (60 * MINUTE, 60, True)],
)
def test_expired(life: int | None, age: int | None, goes: bool) -> None:
    """A node expires at exactly its expiry; Karpenter expires nodes itself."""
    claim = _claim(born=None if age is None else stamp(NOW - minutes(age)))
    result = _ask(method_rules.expired, expire_after=life, claim=claim)
    assert result.passed is goes
    if life is None or age is None:
        assert result.why == "It never expires."
    else:
        assert result.why == ("It expired 0s ago." if goes else "It expires in 1m.")
        assert result.figures == {"expireAfter": "1h", "expiresAt": stamp(NOW + minutes(60 - age))}
    assert not _ask(method_rules.expired, KARPENTER_1_15, expire_after=life, claim=claim).passed


def test_drifted() -> None:
    """The gate says since when the node has drifted."""
    assert not _ask(method_rules.drifted).passed
    result = _ask(method_rules.drifted, drifted_since=NOW)
    assert (result.passed, result.figures) == (True, {"since": stamp(NOW)})


@pytest.mark.parametrize(("count", "said"), [(0, None), (1, "1 virtual pod of"), (2, "2 virtual pods of")])
def test_buffers(count: int, said: str | None) -> None:
    """A node that holds room for a buffer stays."""
    result = _ask(method_rules.no_buffer, buffered={"node": count, "other": 9})
    assert result.passed is (said is None)
    assert said is None or said in result.why
    assert _ask(method_rules.no_buffer, buffered={"other": 9}).passed


@pytest.mark.parametrize(
    ("settings", "facts", "goes"),
    [
        (DOVETAIL, {}, True),
        (DOVETAIL, {"claiming": POD}, False),
        (DOVETAIL, {"claiming": POD, "policy": DisruptionPolicy(static=True)}, True),
        (KARPENTER_1_15, {"claiming": POD}, True),
    ],
)
def test_resource_claims(settings: Settings, facts: dict[str, Any], goes: bool) -> None:
    """A pod with resource claims blocks its node, except in a static pool, which needs no simulation."""
    assert _ask(method_rules.no_resource_claims, settings, **facts).passed is goes


@pytest.mark.parametrize(("ignores", "said"), [(None, "Karpenter launches no node"), (False, "does not simulate")])
def test_why_resource_claims_stay(ignores: bool | None, said: str) -> None:
    """The sentence says how Karpenter handles resource claims."""
    settings = replace(DOVETAIL, karpenter=replace(DOVETAIL.karpenter, ignore_dra_requests=ignores))
    assert said in method_rules.claims_why(POD, settings)


REPAIR = RepairRule(index=0, condition="Ready", status="False", lasting=10 * MINUTE)


def _sick(since: int, *more: RepairRule, **facts: Any) -> dict[str, Any]:
    """Return a node of a repairing pool that has been unready for this many minutes."""
    node = msgspec.convert(
        {
            "status": {
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": stamp(NOW - minutes(since))}]
            }
        },
        Node,
        strict=False,
    )
    return {"node": node, "policy": DisruptionPolicy(repair=more or (REPAIR,)), **facts}


@pytest.mark.parametrize(("since", "goes"), [(9, False), (10, True), (11, True)])
def test_unhealthy(since: int, goes: bool) -> None:
    """A condition must last for the full duration; exactly that long is enough."""
    result = _ask(method_rules.unhealthy, **_sick(since))
    assert result.passed is goes
    assert result.why == f"Its condition Ready has been False for {since}m{'.' if goes else '; it is repaired in 1m.'}"
    assert not _ask(method_rules.unhealthy).passed


def test_do_not_repair() -> None:
    """The annotation do-not-repair blocks repair of its node."""
    assert _ask(method_rules.may_be_repaired).passed
    assert _ask(method_rules.may_be_repaired, annotations={names.DO_NOT_REPAIR: "no"}).passed
    assert not _ask(method_rules.may_be_repaired, annotations={names.DO_NOT_REPAIR: "true"}).passed


# ---------------------------------------------------------------- the chains


def _chains(**facts: Any) -> dict[str, tuple[str, bool]]:
    """Return for every method the gate at which it ended, and whether the node passed."""
    facts = {"labels": LABELS, "last_event": NOW - minutes(60), **facts}
    vetoes = facts.pop("vetoes", None)
    chains = gates_of(facts_of(**facts), GateContext(settings=DOVETAIL, now=NOW, vetoes=vetoes))
    return {method.value: (chain.results[-1].gate.value, chain.open) for method, chain in chains.items()}


def test_chains_of_a_node_with_a_pod() -> None:
    """Each method ends at its own gate; singleNode and multiNode share their gates."""
    drifted = _chains(pods=1, drifted_since=NOW)
    assert drifted == {
        "empty": ("not-empty", False),
        "expired": ("not-expired", False),
        "drifted": ("dynamic-resources", True),
        "multiNode": ("dynamic-resources", True),
        "singleNode": ("dynamic-resources", True),
    }
    assert set(_chains(marked="x").values()) == {("marked-for-deletion", False)}
    assert _chains()["empty"] == ("min-node-age", True)


@pytest.mark.parametrize(
    ("period", "lifted"), [(None, False), ("5m", True), ("Never", False), ("banana", False), ("0s", True)]
)
def test_a_bounded_drain_lifts_the_pods_gates(period: str | None, lifted: bool) -> None:
    """A bounded drain lifts the pods' gates for drift and expiry only."""
    claim = _claim(spec={"terminationGracePeriod": period})
    assert candidates.is_bounded(claim) is lifted
    found = _chains(pods=1, drifted_since=NOW, vetoes=_Veto(), claim=claim)
    assert found["drifted"] == (("dynamic-resources", True) if lifted else ("pdb", False))
    assert found["expired"] == (("not-expired", False) if lifted else ("pdb", False))
    for method in ("multiNode", "singleNode"):
        assert found[method] == ("pdb", False)
    assert found["empty"] == ("not-empty", False), "an empty node asks no PDB"
    gates = GateContext(settings=DOVETAIL, now=NOW, vetoes=_Veto())
    chain = gates_of(facts_of(pods=1, drifted_since=NOW, claim=claim), gates)[Method.DRIFTED]
    told = [result for result in chain.results if result.gate is Gate.PDB]
    assert len(told) == 1
    assert told[0].why.endswith("terminationGracePeriod lifts that.") is lifted
    assert [result.why.endswith("lifts that.") for result in chain.results].count(True) == int(lifted)


@pytest.mark.parametrize(
    ("facts", "ends"),
    [
        (_sick(60), ("surge", True)),
        (_sick(60, vetoes=_Veto()), ("pdb", False)),
        (_sick(60, pod_windows=((POD, read_pod_window(BROKEN)),)), ("surge", True)),
        (_sick(60, change(REPAIR, drain_for=1), vetoes=_Veto()), ("pdb", True)),
        (_sick(60, vetoes=_Veto(), claim=_claim(spec={"terminationGracePeriod": "5m"})), ("pdb", True)),
        (_sick(9), ("not-unhealthy", False)),
        (_sick(60, annotations={names.DO_NOT_REPAIR: "true"}), ("do-not-repair", False)),
        (_sick(60, marked="x"), ("marked-for-deletion", False)),
        (_sick(60, nominated=True), ("nominated", False)),
        ({}, None),
        ({"policy": None, "pool": None}, None),
    ],
)
def test_the_chain_of_repair(facts: dict[str, Any], ends: tuple[str, bool] | None) -> None:
    """Repair applies to repairing pools; a bounded drain passes the pods' gates; pod windows are ignored."""
    gates = GateContext(settings=DOVETAIL, now=NOW, vetoes=facts.get("vetoes"))
    node = facts_of(**{key: value for key, value in facts.items() if key != "vetoes"})
    chain = gates_of(node, gates).get(Method.UNHEALTHY)
    rows = OpenGates(GateTable().renewed([node], change(gates, vetoes=None)), gates, dict)
    assert dict(rows.ends()[0]).get(Method.UNHEALTHY) == (ends and (None if ends[1] else ends[0]))
    assert (None if chain is None else (chain.results[-1].gate.value, chain.open)) == ends


_MAYBE: dict[str, list[Any]] = {
    "marked": ["", "x"],
    "nominated": [False, True],
    "initialized": [True, False],
    "rebooting": [False, True],
    "pods": [0, 1],
    "labels": [LABELS, {}],
    "last_event": [None, NOW - minutes(60), NOW - minutes(1)],
    "drifted_since": [None, NOW],
    "expire_after": [None, MINUTE],
    "claiming": [None, POD],
    "pod_windows": [(), ((POD, read_pod_window(BROKEN)),)],
    "claim": [_claim(), _claim(spec={"terminationGracePeriod": "5m"}), _claim(born=stamp(NOW - minutes(9)))],
    "policy": [
        DisruptionPolicy(consolidate_after=5 * MINUTE),
        DisruptionPolicy(repair=(change(REPAIR, drain_for=1),)),
        DisruptionPolicy(static=True, repair=(REPAIR,)),
    ],
    "node": [Node(), _sick(60)["node"], None],
    "vetoes": [None, _Veto()],
}


@given(st.fixed_dictionaries({key: st.sampled_from(values) for key, values in _MAYBE.items()}))
def test_the_first_closed_gate_is_where_the_chain_ends(facts: dict[str, Any]) -> None:
    """Without the chains, each method ends at the same gate."""
    gates = GateContext(settings=DOVETAIL, now=NOW, vetoes=facts.pop("vetoes"))
    node = facts_of(**facts)
    ends = {method: chain.results[-1] for method, chain in gates_of(node, gates).items()}
    plain = [(method, None if end.passed else end.gate) for method, end in ends.items()]
    rows = OpenGates(GateTable().renewed([node], change(gates, vetoes=None)), gates, dict)
    assert list(rows.ends()[0]) == plain


def test_a_chain_goes_on() -> None:
    """Additional gates follow the existing ones."""
    first, second = passed(Gate.MANAGED, "a"), passed(Gate.PAUSED, "b")
    chain = candidates.Chain(Method.EMPTY, (first,))
    assert chain.then(second).results == (first, second)
    assert passed(Gate.MANAGED, "a") is first


@pytest.mark.parametrize(("count", "said"), [(1, "pod d/p waits"), (2, "pod d/p and 1 more wait"), (3, "and 2 more")])
def test_a_node_that_pods_wait_for(count: int, said: str) -> None:
    """The chain of a node with pending pods ends at the gate `nominated` and names the first pod."""
    results = tuple(passed(gate, "") for gate in (Gate.MANAGED, Gate.NOMINATED, Gate.NOT_EMPTY))
    chain = awaited(candidates.Chain(Method.EMPTY, results), [POD] * count)
    assert [result.gate for result in chain.results] == [Gate.MANAGED, Gate.NOMINATED]
    assert not chain.open
    assert said in chain.results[-1].why
    assert chain.results[-1].figures == {"pod": "d/p", "pods": count}


# ---------------------------------------------------------------- timers


@pytest.mark.parametrize(
    ("written", "seen", "initialized", "event"),
    [
        (None, None, None, None),
        (5, None, None, 5),
        (None, 5, None, 5),
        (5, 7, None, 5),
        (7, 5, None, 5),
        (5, None, ("True", 3), 5),
        (None, None, ("True", 3), 3),
        (None, None, ("False", 3), None),
    ],
)
def test_the_last_pod_event(
    written: int | None, seen: int | None, initialized: tuple[str, int] | None, event: int | None
) -> None:
    """The later of the recorded and observed event counts, else the initialization; in minutes ago."""
    said = (
        () if initialized is None else ((names.CONDITION_INITIALIZED, initialized[0], NOW - minutes(initialized[1])),)
    )
    claim = _claim(*said, lastPodEventTime=None if written is None else stamp(NOW - minutes(written)))
    found = last_pod_event(claim, None if seen is None else NOW - minutes(seen))
    assert found == (None if event is None else NOW - minutes(event))
    assert last_pod_event(None, NOW) is None


HIDES = replace(DOVETAIL, consolidate_after_hides_destinations=True)
SHOWS = replace(KARPENTER_1_15, consolidate_after_hides_destinations=False)
READY = _claim((names.CONDITION_INITIALIZED, "True", NOW))


@pytest.mark.parametrize(
    ("settings", "facts", "closed"),
    [
        (DOVETAIL, {"policy": DisruptionPolicy(grace_period=10 * MINUTE)}, True),
        (DOVETAIL, {"policy": DisruptionPolicy(grace_period=5 * MINUTE)}, False),
        (DOVETAIL, {"policy": DisruptionPolicy(consolidate_after=10 * MINUTE)}, False),
        (DOVETAIL, {"policy": None}, False),
        (HIDES, {"policy": DisruptionPolicy(grace_period=10 * MINUTE)}, True),
        (HIDES, {"policy": DisruptionPolicy(consolidate_after=10 * MINUTE)}, True),
        (HIDES, {"policy": DisruptionPolicy(consolidate_after=10 * MINUTE, static=True)}, False),
        (HIDES, {"policy": DisruptionPolicy(consolidate_after=5 * MINUTE)}, False),
        (HIDES, {"policy": DisruptionPolicy(consolidate_after=None)}, False),
        (HIDES, {"policy": None}, False),
        (KARPENTER_1_15, {"policy": DisruptionPolicy(grace_period=10 * MINUTE, consolidate_after=0)}, False),
        (KARPENTER_1_15, {"policy": DisruptionPolicy(consolidate_after=10 * MINUTE)}, True),
        (KARPENTER_1_15, {"policy": DisruptionPolicy(consolidate_after=10 * MINUTE, static=True)}, True),
        (KARPENTER_1_15, {"policy": DisruptionPolicy(consolidate_after=10 * MINUTE), "claim": NodeClaim()}, False),
        (KARPENTER_1_15, {"policy": DisruptionPolicy(consolidate_after=10 * MINUTE), "claim": None}, False),
        (KARPENTER_1_15, {"policy": None}, False),
        (SHOWS, {"policy": DisruptionPolicy(consolidate_after=10 * MINUTE)}, False),
    ],
)
def test_which_nodes_are_closed(settings: Settings, facts: dict[str, Any], closed: bool) -> None:
    """Nodes in their grace period are closed and, with the setting, nodes within consolidateAfter."""
    node = facts_of(**{"claim": READY, "last_event": NOW - timedelta(minutes=5), **facts})
    until = moved_pods_until(node, settings)
    assert (until is not None and until > NOW) is closed
