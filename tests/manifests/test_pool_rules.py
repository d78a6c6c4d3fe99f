"""A NodePool that would be refused launches nothing and says so; other pools go on (docs/rules.md#policy)."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.findings import has_errors
from dovetail.api.manifests.pool_rules import launch_problems
from dovetail.api.manifests.validate import validate_manifest
from dovetail.api.policy import effective_policy
from dovetail.api.reading.decode import decode_document, decode_item, decode_objects
from dovetail.api.reading.documents import split_documents
from dovetail.model.objects import NodePool
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from tests.paths import SHARED, needs_shared
from tests.support.crd_rules import KARPENTER_RULES, RULES, Manifest, Rule, pool, template
from tests.support.design_world import Town, kind, moved

POOL_RULES = [rule for rule in (*RULES, *KARPENTER_RULES) if rule.bad["kind"] == "NodePool"]


def decoded(manifest: Manifest) -> NodePool:
    """Decode one pool."""
    (found,) = decode_objects(json.dumps(manifest).encode()).objects
    assert isinstance(found, NodePool)
    return found


def told(found: NodePool) -> tuple[str, ...]:
    """Everything that a plan says of a pool."""
    return (*effective_policy(found, DOVETAIL).problems, *launch_problems(found))


def left_out(rule: Rule) -> bool:
    """Whether the rule is broken by what is not there or empty, which a decoded object can't tell from a default."""
    if "nodeClassRef" in rule.field:
        return True
    return "is required" in " ".join(finding.message for finding in validate_manifest(rule.bad))


@pytest.mark.parametrize("rule", POOL_RULES, ids=lambda rule: rule.name)
def test_a_plan_says_what_validate_refuses(rule: Rule) -> None:
    """Each rule of the table: silence over the object that keeps it, a problem for the one that breaks it."""
    assert told(decoded(rule.good)) == ()
    if not left_out(rule) and not rule.field.startswith("metadata"):
        assert told(decoded(rule.bad))


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (pool(replicas=-2), "spec.replicas (-2): is out of bounds; write 0 or more"),
        (pool(weight=1000), "spec.weight (1000): is out of bounds; write 1 to 100"),
        (pool(weight="ten"), 'spec.weight is "ten"; write a whole number'),
        (pool(limits={"cpu": "many"}), 'spec.limits.cpu ("many"): must be a quantity'),
        (pool(limits={"cpu": "9" * 5000}), "spec.limits.cpu"),
        (pool(limits=5), "spec.limits is 5; write a map"),
        (pool(template=5), "spec.template is 5; write a map"),
        (
            pool(template=template(requirements=[{"key": "a", "operator": "Gt", "values": ["x"]}])),
            'spec.template.spec.requirements[0].values (["x"]): must be one whole number of 0 or more for Gt',
        ),
        (pool(template=template(requirements="no")), 'spec.template.spec.requirements is "no"; write a list'),
        (pool(template=template(expireAfter="banana")), "spec.template.spec.expireAfter"),
    ],
)
def test_one_problem_one_sentence(manifest: Manifest, said: str) -> None:
    """What is wrong is named once, with its value and what to write."""
    (problem,) = launch_problems(decoded(manifest))
    assert said in problem


@pytest.mark.parametrize("disruption", [5, {"budgets": 5}, {"budgets": [5]}, {"consolidateAfter": {"a": 1}}])
def test_a_policy_that_cant_be_read_closes_the_pool(disruption: Any) -> None:
    """Where a part of the policy has no readable form at all, nothing is disrupted, and the pool still launches."""
    found = decoded(pool(disruption=disruption))
    for settings in (DOVETAIL, KARPENTER_1_15):
        policy = effective_policy(found, settings)
        assert len(policy.problems) == 1
        assert policy.consolidate_after is None
        assert policy.budgets[0].problem
    assert launch_problems(found) == ()


@pytest.mark.parametrize("disruption", [{"consolidateAfter": 30}, {"consolidationPolicy": 7}])
def test_a_policy_field_of_the_wrong_type_closes_what_it_governs(disruption: Any) -> None:
    """A number for a duration switches consolidation off and leaves budgets and expiry alone."""
    policy = effective_policy(decoded(pool(disruption=disruption)), DOVETAIL)
    assert policy.consolidate_after is None
    assert policy.budgets[0].problem is None
    assert "nothing is consolidated until it is mended" in policy.problems[0]


@pytest.mark.parametrize("budget", [{"nodes": "1", "reasons": 5}, {"schedule": 5, "duration": "1h"}])
def test_karpenters_profile_survives_wrong_types(budget: Any) -> None:
    """A budget that Karpenter could not even hold stops its pool, as one that it can't read."""
    assert effective_policy(decoded(pool(disruption={"budgets": [budget]})), KARPENTER_1_15).budgets[0].problem


def test_a_threshold_beyond_all_money_is_one() -> None:
    """The API server takes any number; one that no move could ever save is read, not refused."""
    policy = effective_policy(decoded(pool(disruption={"consolidationSavingsThreshold": 1e308})), DOVETAIL)
    assert policy.problems == ()
    assert policy.consolidate_after is not None
    assert not has_errors(validate_manifest(pool(disruption={"consolidationSavingsThreshold": 1e308})))


def test_a_server_s_pool_is_read_the_same_way() -> None:
    """What comes from a list or a watch is decoded as leniently as a file."""
    raw = msgspec.json.encode(pool(weight="ten", disruption=5))
    found = decode_item(raw, "NodePool")
    assert isinstance(found, NodePool)
    assert sorted(path for path, _ in found.unread) == ["spec.disruption", "spec.weight"]


def test_a_broken_pool_launches_nothing_and_the_others_go_on() -> None:
    """A drifted node moves to the sound pool's machine; without one its pods find no place, and a warning says why."""
    town = Town(kind("m", "0.20"))
    town.pool("broken", weight=1000, disruption={"consolidateAfter": "Never"})
    town.node("n", "m", pool="broken", drifted=timedelta(hours=1))
    town.fill("n", 1)
    assert town.act() is None
    assert town.verdicts()["n"] == "simulation"
    (warning,) = town.round().warnings
    assert warning.startswith("NodePool broken: spec.weight (1000)")
    assert warning.endswith("it launches no node until that is mended")
    town.pool("sound", disruption={"consolidateAfter": "Never"})
    command = town.act()
    assert moved(command) == ("replaceDrifted", ("n",))
    assert command is not None
    assert command.replacements[0].node_pool == "sound"


def test_a_static_pool_of_minus_two_replaces_nothing() -> None:
    """Its drifted nodes stay, and the reason is the number, not that it shrinks."""
    town = Town(kind("m", "0.20"))
    town.pool(replicas=-2)
    town.node("n", "m", drifted=timedelta(hours=1))
    town.fill("n", 1)
    (told,) = town.round().verdicts
    assert told.verdict == "new-nodes"
    assert "spec.replicas (-2)" in told.why


@needs_shared
def test_real_pools_that_are_valid_have_no_problem() -> None:
    """No pool that real people wrote, and that validation accepts, is kept from launching or closed."""
    seen = 0
    for file in sorted((SHARED / "manifests" / "docs").glob("*nodepool*-valid.yaml")):
        for document in split_documents(file.read_bytes()):
            found = decode_document(document)
            if isinstance(found, NodePool) and not has_errors(validate_manifest(document.as_tree())):
                assert told(found) == (), file.name
                seen += 1
    assert seen > 20
