"""Static pools: drifted nodes are terminated first within budgets, and no claim exceeds the replicas."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.model.objects import NodePool
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from tests.karpenter_features.world import told
from tests.support.design_world import Town, kind, moved

HOUR = timedelta(hours=1)


def _town(count: int = 3, *, replicas: int = 3, drifted: int = 3, **options: Any) -> Town:
    town = Town(kind("m", "1"), settings=options.pop("settings", DOVETAIL))
    town.pool("fixed", replicas=replicas, disruption={"budgets": [{"nodes": options.pop("budget", "1")}]}, **options)
    for number in range(count):
        town.node(f"n{number}", "m", pool="fixed", drifted=(number + 1) * HOUR if number < drifted else None)
        town.fill(f"n{number}", 1)
    return town


def test_one_goes_and_nothing_is_launched() -> None:
    """The oldest drifted node goes; Karpenter refills the pool, so nothing is saved and nothing is created."""
    command = _town().act()
    assert moved(command) == ("deleteDrifted", ("n2",))
    assert command is not None
    assert (command.replacements, command.savings) == ((), 0)


def test_no_fourth_claim_in_any_case() -> None:
    """No claim exceeds the replicas: Karpenter would delete it first."""
    for budget in ("1", "2", "100%"):
        command = _town(budget=budget).act()
        assert command is not None
        assert not command.replacements


@pytest.mark.parametrize(
    ("budget", "missing", "goes"),
    [("0", 0, False), ("1", 0, True), ("1", 1, False), ("2", 1, True), ("2", 2, False)],
)
def test_within_the_budget_and_only_while_refilled(budget: str, missing: int, goes: bool) -> None:
    """Missing nodes count like nodes in flight."""
    town = _town(3 - missing, budget=budget)
    assert (town.act() is not None) is goes


def test_a_pool_that_shrinks_is_left_alone() -> None:
    """A pool with more nodes than replicas is left alone, because Karpenter deletes some anyway."""
    assert _town(replicas=2).act() is None


@pytest.mark.parametrize(
    ("settings", "gate", "words"),
    [
        (told(staticDrift="Leave"), "pool-policy", "left to Karpenter"),
        (told(featureGates="StaticCapacity=false"), "pool-policy", "would not refill"),
        (told(featureGates="StaticCapacity=true"), "eligible", ""),
    ],
)
def test_it_can_be_left_to_karpenter(settings: Any, gate: str, words: str) -> None:
    """A setting leaves static pools to Karpenter; so does a Karpenter that is known not to refill."""
    town = _town(settings=settings)
    entry = {verdict.node: verdict for verdict in town.round(every_method=True).verdicts}["n2"]
    assert entry.verdict == gate
    assert words in entry.why


def test_a_pool_that_is_not_ready_is_not_refilled() -> None:
    """A pool that is not Ready is left alone, because Karpenter does not refill it."""
    import msgspec

    town = _town()
    tree = msgspec.to_builtins(town.pools["fixed"])
    tree["status"]["conditions"][0]["status"] = "False"
    town.pools["fixed"] = msgspec.convert(tree, NodePool)
    assert town.act() is None


def test_karpenter_replaces_within_its_limits() -> None:
    """In the profile karpenter-1.15 a replacement comes first; at the limit nothing happens without the gate."""
    assert moved(_town(drifted=1, settings=KARPENTER_1_15).act()) == ("replaceDrifted", ("n0",))
    assert _town(drifted=1, settings=KARPENTER_1_15, limits={"nodes": 3}).act() is None


def test_at_the_limit_karpenter_terminates_first_with_its_gate() -> None:
    """With TerminateFirstDrift, a node goes first if limits.nodes has no room (static-at-limit)."""
    settings = told(KARPENTER_1_15, featureGates="TerminateFirstDrift=true")
    command = _town(drifted=1, settings=settings, limits={"nodes": 3}).act()
    assert moved(command) == ("deleteDrifted", ("n0",))
    assert moved(_town(drifted=1, settings=settings).act()) == ("replaceDrifted", ("n0",))


def test_an_expired_node_goes_first_too() -> None:
    """An expired node of a static pool also goes first."""
    town = Town(kind("m", "1"))
    town.pool("fixed", replicas=1, disruption={"expireAfter": "1h"})
    town.node("n", "m", pool="fixed", age=2 * HOUR)
    town.fill("n", 1)
    assert moved(town.act()) == ("deleteExpired", ("n",))
