import gzip
import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.policy import effective_policy
from dovetail.model.money import parse_money
from dovetail.model.objects import NodePool
from dovetail.model.policies.policy import ConsolidationPolicy, DisruptionPolicy, Reason
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from dovetail.model.timing.duration import DAY, HOUR, MINUTE, SECOND, format_duration, parse_nillable
from tests.paths import SHARED, needs_shared
from tests.support.crd_rules import RULES, SCHEDULES_BAD, SCHEDULES_GOOD, Rule

ANNOTATION = "dovetail.dev/disruption"
UNLIMITED = 2**31 - 1


def node_pool(
    disruption: Any = None, annotation: str | None = None, expire: str | None = None, **spec: Any
) -> NodePool:
    """Make a pool with this policy."""
    tree: dict[str, Any] = {"kind": "NodePool", "metadata": {"name": "p"}, "spec": spec}
    if disruption is not None:
        tree["spec"]["disruption"] = disruption
    if annotation is not None:
        tree["metadata"]["annotations"] = {ANNOTATION: annotation}
    if expire is not None:
        tree["spec"]["template"] = {"spec": {"expireAfter": expire}}
    return msgspec.convert(tree, NodePool)


def policy(disruption: Any = None, annotation: str | None = None, **more: Any) -> DisruptionPolicy:
    """Return the policy under our own rules."""
    return effective_policy(node_pool(disruption, annotation, **more), DOVETAIL)


def allowed(effective: DisruptionPolicy, reason: Reason, nodes: int, now: datetime) -> int:
    """Count what the flat budgets allow: the plain reading of docs/rules.md#budgets."""
    least = UNLIMITED
    for budget in effective.budgets:
        if budget.topology_key or (budget.reasons is not None and reason not in budget.reasons):
            continue
        if budget.problem is not None:
            return 0
        if budget.window is None or budget.window.active(now):
            least = min(least, -(-budget.amount * nodes // 100) if budget.is_percent else budget.amount)
    return least


def test_the_defaults_of_spec_section_1() -> None:
    """Nothing written: 15s, WhenEmptyOrUnderutilized, 0.01, no grace period, one budget of 10%, expiry of the claim."""
    effective = policy()
    assert effective.consolidation_policy is ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED
    assert effective.consolidate_after == 15 * SECOND
    assert effective.grace_period is None
    assert effective.savings_threshold == parse_money("0.01")
    assert (effective.expire_after, effective.expire_after_set) == (720 * HOUR, False)
    assert [(budget.nodes, budget.amount, budget.is_percent) for budget in effective.budgets] == [("10%", 10, True)]
    assert set(effective.origins.values()) == {"default"}
    assert effective.problems == effective.warnings == ()


def test_what_the_spec_says() -> None:
    """Every field of the spec is read, with its origin."""
    effective = policy(
        {
            "consolidationPolicy": "Balanced",
            "consolidateAfter": "1h30m",
            "expireAfter": "7d",
            "consolidationGracePeriod": "30m",
            "consolidationSavingsThreshold": 0.05,
            "budgets": [
                {
                    "nodes": "0",
                    "schedule": "TZ=Europe/Berlin 0 9 * * mon-fri",
                    "duration": "8h",
                    "reasons": ["Drifted"],
                },
                {"nodes": "25%", "topologyKey": "topology.kubernetes.io/zone", "sequential": True},
            ],
        }
    )
    assert effective.consolidation_policy is ConsolidationPolicy.BALANCED
    assert effective.consolidate_after == 90 * MINUTE
    assert (effective.expire_after, effective.expire_after_set) == (7 * DAY, True)
    assert effective.grace_period == 30 * MINUTE
    assert effective.savings_threshold == parse_money("0.05")
    first, second = effective.budgets
    assert first.window is not None
    assert first.window.duration_ns == 8 * HOUR
    assert first.reasons == (Reason.DRIFTED,)
    assert (second.topology_key, second.sequential, second.amount) == ("topology.kubernetes.io/zone", True, 25)
    new = ("windows", "minNodeAge", "health", "repair", "disruptionPrice", "restartPrice")
    assert {origin for key, origin in effective.origins.items() if key not in new} == {"spec"}


def test_keys_of_the_annotation_win_one_by_one() -> None:
    """The annotation's keys stand over the spec's; the others stay."""
    effective = policy(
        {"consolidateAfter": "1h", "consolidationGracePeriod": "10m"},
        "consolidateAfter: 2h\nbudgets:\n- nodes: 3\n",
    )
    assert effective.consolidate_after == 2 * HOUR
    assert effective.grace_period == 10 * MINUTE
    assert effective.budgets[0].amount == 3
    assert effective.origins["consolidateAfter"] == effective.origins["budgets"] == "annotation"
    assert effective.origins["consolidationGracePeriod"] == "spec"
    assert effective.problems == effective.warnings == ()


def test_an_annotation_in_json_is_the_same() -> None:
    """YAML or JSON."""
    assert policy(None, '{"consolidateAfter": "Never"}').consolidate_after is None


def test_a_mended_key_in_the_annotation_hides_a_broken_one_in_the_spec() -> None:
    """What is overridden is not judged."""
    assert policy({"consolidateAfter": "1d"}, "consolidateAfter: 24h").problems == ()


def test_an_unreadable_annotation_closes_the_pool() -> None:
    """Nobody knows what was meant, so nothing is disrupted, and it is said."""
    effective = policy(None, "[1")
    assert effective.consolidate_after is None
    assert (effective.expire_after, effective.expire_after_set) == (None, True)
    assert [(budget.reasons, budget.amount, bool(budget.problem)) for budget in effective.budgets] == [(None, 0, True)]
    assert len(effective.problems) == 1


def test_an_unknown_key_of_the_annotation_is_a_warning() -> None:
    """It is ignored and told."""
    effective = policy(None, "consolidateAftr: 2h")
    assert effective.problems == ()
    assert "consolidateAftr" in effective.warnings[0]


@pytest.mark.parametrize("schedule", SCHEDULES_BAD)
def test_a_broken_budget_closes_only_the_reasons_it_names(schedule: str) -> None:
    """The other budgets, and the other reasons, go on (docs/rules.md#policy)."""
    effective = policy(
        {"budgets": [{"nodes": "5", "schedule": schedule, "duration": "1h", "reasons": ["Drifted"]}, {"nodes": "3"}]}
    )
    now = datetime.fromisoformat("2026-03-14T15:30:00Z")
    assert allowed(effective, Reason.DRIFTED, 100, now) == 0
    assert allowed(effective, Reason.EMPTY, 100, now) == 3
    assert effective.problems
    assert effective.budgets[0].problem


def test_a_broken_budget_whose_reasons_cant_be_read_closes_all() -> None:
    """An unknown reason might have been any of them."""
    effective = policy({"budgets": [{"nodes": "5", "reasons": ["Empty", "Cost"]}]})
    assert effective.budgets[0].reasons is None
    assert effective.budgets[0].problem


@pytest.mark.parametrize("rule", [rule for rule in RULES if "budgets[0]" in rule.field], ids=lambda rule: rule.name)
def test_a_budget_that_validation_refuses_is_broken_here(rule: Rule) -> None:
    """Validation and the policy have the same verdict; what the struct can't even hold comes by the annotation."""
    for manifest, is_broken in ((rule.good, False), (rule.bad, True)):
        effective = policy(None, json.dumps(manifest["spec"]["disruption"]))
        assert (effective.budgets[0].problem is not None) is is_broken
        assert bool(effective.problems) is is_broken


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("consolidateAfter", "1d"),
        ("consolidationPolicy", "Never"),
        ("consolidationGracePeriod", "off"),
        ("consolidationSavingsThreshold", -1),
        ("consolidationSavingsThreshold", "0.05"),
        ("consolidateAfter", "9" * 40 + "h"),
        ("disruptionPrice", "much"),
        ("restartPrice", "much"),
        ("minNodeAge", "old"),
    ],
)
def test_an_unreadable_consolidation_field_switches_consolidation_off(field: str, value: Any) -> None:
    """It fails closed, and says so; budgets, drift and expiry are not touched."""
    effective = policy({field: value})
    assert effective.consolidate_after is None
    assert len(effective.problems) == 1
    assert effective.budgets[0].problem is None


def test_an_unreadable_expiry_switches_graceful_expiry_off() -> None:
    """Never is the safe reading; consolidation goes on."""
    effective = policy({"expireAfter": "1w"})
    assert (effective.expire_after, effective.expire_after_set) == (None, True)
    assert effective.consolidate_after == 15 * SECOND
    assert effective.problems


def test_budgets_that_are_no_list_close_the_pool() -> None:
    """As in the spec, where the decoder leaves out what is no list and says so."""
    (budget,) = policy(None, "budgets: 10%").budgets
    assert budget.problem
    assert budget.reasons is None


def test_no_budgets_is_no_limit() -> None:
    """An empty list was meant."""
    assert policy({"budgets": []}).budgets == ()


def test_an_empty_list_of_reasons_means_all() -> None:
    """Karpenter applies it to nothing; here it is as if not written."""
    assert policy({"budgets": [{"nodes": "1", "reasons": []}]}).budgets[0].reasons is None


def test_a_number_for_nodes_is_read_and_told() -> None:
    """Normalised, with a warning."""
    effective = policy({"budgets": [{"nodes": 5}]})
    assert (effective.budgets[0].nodes, effective.budgets[0].amount) == ("5", 5)
    assert len(effective.warnings) == 1


def test_the_older_word_for_the_policy() -> None:
    """WhenUnderutilized is read as WhenEmptyOrUnderutilized (disruption-controls)."""
    word = policy({"consolidationPolicy": "WhenUnderutilized"}).consolidation_policy
    assert word is ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED


def test_a_static_pool_ignores_what_consolidates() -> None:
    """The four fields don't count, budgets and expiry do."""
    effective = policy(
        {"consolidateAfter": "bad", "consolidationGracePeriod": "1h", "expireAfter": "5h", "budgets": [{"nodes": "2"}]},
        replicas=3,
    )
    assert effective.static
    assert effective.grace_period is None
    assert effective.problems == ()
    assert effective.expire_after == 5 * HOUR
    assert effective.budgets[0].amount == 2


def test_graceful_expiry_after_the_forceful_one_is_a_warning() -> None:
    """Karpenter removes the node first, so it must be shorter (docs/rules.md#karpenter)."""
    assert policy({"expireAfter": "24h"}, expire="24h").warnings
    assert policy({"expireAfter": "23h"}, expire="24h").warnings == ()
    assert policy({"expireAfter": "9000h"}, expire="Never").warnings == ()


def test_expiry_of_the_template_is_named() -> None:
    """Where the policy says nothing, the claim's own counts, which came from the template."""
    effective = policy(expire="48h")
    assert (effective.expire_after, effective.expire_after_set) == (48 * HOUR, False)
    assert effective.origins["expireAfter"] == "template"


# --- the profile karpenter-1.15 ---------------------------------------------------------------------------------------


def karpenter(disruption: Any = None, annotation: str | None = None) -> DisruptionPolicy:
    """Return the policy under Karpenter's rules."""
    return effective_policy(node_pool(disruption, annotation), KARPENTER_1_15)


def test_karpenter_knows_none_of_the_new_fields() -> None:
    """No grace period, no threshold, no graceful expiry, no annotation, topology budgets are flat."""
    effective = karpenter(
        {
            "consolidationGracePeriod": "1h",
            "consolidationSavingsThreshold": 5,
            "expireAfter": "1h",
            "budgets": [{"nodes": "1", "topologyKey": "zone", "sequential": True}],
        },
        "consolidateAfter: 99h",
    )
    assert (effective.grace_period, effective.savings_threshold, effective.consolidate_after) == (None, 0, 0)
    assert not effective.expire_after_set
    assert (effective.budgets[0].topology_key, effective.budgets[0].sequential) == ("", False)


def test_karpenter_stops_the_pool_for_one_bad_budget() -> None:
    """Whatever reasons it names."""
    effective = karpenter({"budgets": [{"nodes": "5", "schedule": "x", "duration": "1h", "reasons": ["Empty"]}]})
    now = datetime.fromisoformat("2026-03-14T15:30:00Z")
    assert allowed(effective, Reason.DRIFTED, 100, now) == 0
    assert effective.problems


def test_karpenter_cant_read_time_zones() -> None:
    """A zone in front is one field too many to it."""
    assert karpenter({"budgets": [{"nodes": "1", "schedule": "TZ=UTC @daily", "duration": "1h"}]}).problems


def test_karpenter_applies_an_empty_list_of_reasons_to_nothing() -> None:
    """The budget is as if not there."""
    assert karpenter({"budgets": [{"nodes": "0", "reasons": []}]}).budgets == ()


@needs_shared
def test_karpenters_budgets_are_reproduced() -> None:
    """Karpenter's own answers on windows and allowances."""
    units = json.loads(gzip.decompress((SHARED / "golden" / "units.json.gz").read_bytes()))
    asked = 0
    for question, answer in ((unit["question"], unit["answer"]) for unit in units):
        if question["kind"] == "allowedDisruptions":
            effective = effective_policy(msgspec.convert(question["nodePool"], NodePool), KARPENTER_1_15)
            nodes = next(value for value in question.values() if isinstance(value, int))
            now = datetime.fromisoformat(question.get("now", "2026-05-13T09:00:00Z"))
            assert allowed(effective, Reason(question["reason"]), nodes, now) == answer["must"], question["id"]
            asked += 1
        elif question["kind"] == "budgetActive":
            effective = karpenter({"budgets": [question["budget"]]})
            now = datetime.fromisoformat(question["now"])
            is_active = any(
                not budget.problem and (budget.window is None or budget.window.active(now))
                for budget in effective.budgets
            )
            assert is_active is answer["active"], question["id"]
            assert bool(effective.problems) is (answer["error"] is not None), question["id"]
            asked += 1
    assert asked > 200


# --- properties -------------------------------------------------------------------------------------------------------

LENGTHS = st.lists(st.tuples(st.integers(0, 500), st.sampled_from("smh")), min_size=1, max_size=4).map(
    lambda parts: "".join(f"{number}{unit}" for number, unit in parts)
)
NODES = st.integers(0, 100).map(lambda n: f"{n}%") | st.integers(0, 10**6).map(str)
WINDOWS = st.fixed_dictionaries(
    {"schedule": st.sampled_from(SCHEDULES_GOOD), "duration": st.integers(0, 99).map(lambda n: f"{n}h30m")}
)
BUDGETS = st.builds(
    lambda base, window, topology: base | window | topology,
    st.fixed_dictionaries(
        {"nodes": NODES}, optional={"reasons": st.lists(st.sampled_from([r.value for r in Reason]), unique=True)}
    ),
    st.just({}) | WINDOWS,
    st.just({})
    | st.just({"topologyKey": "topology.kubernetes.io/zone"})
    | st.just({"topologyKey": "rack", "sequential": True}),
)
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "consolidationPolicy": st.sampled_from(["WhenEmpty", "WhenUnderutilized", "Balanced"]),
        "consolidateAfter": LENGTHS | st.just("Never"),
        "consolidationGracePeriod": LENGTHS | st.just("Never"),
        "expireAfter": LENGTHS | st.just("Never") | st.integers(0, 400).map(lambda n: f"{n}d"),
        "consolidationSavingsThreshold": st.floats(0, 1000) | st.integers(0, 5),
        "budgets": st.lists(BUDGETS, max_size=4),
    },
)


@given(LENGTHS | st.just("Never"))
def test_a_duration_read_written_and_read_is_the_same(text: str) -> None:
    """Parse, print, parse."""
    length = parse_nillable(text)
    assert parse_nillable(format_duration(length)) == length


@given(POLICIES)
def test_a_policy_means_the_same_in_the_spec_and_in_the_annotation(written: dict[str, Any]) -> None:
    """Every field of a valid policy is read without a problem, and alike from both places."""
    by_spec, by_annotation = policy(written), policy(None, json.dumps(written))
    assert by_spec.problems == by_annotation.problems == ()
    assert len(by_spec.warnings) == len(by_annotation.warnings)  # each names its place
    assert by_spec == replace(by_annotation, origins=by_spec.origins, warnings=by_spec.warnings)
