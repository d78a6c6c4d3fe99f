"""Pods that a setting names go with their node: they keep it from nothing and are no restart."""

from dataclasses import replace
from typing import Any

import pytest

from dovetail.api.daemon_like import read_daemon_like
from dovetail.api.findings import InputError
from dovetail.decide.round import plan_round
from dovetail.model.policies.daemon_like import with_daemon_like
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.sim.world.clock import MINUTE
from tests.support.design_world import Town, kind
from tests.support.rogue import settle, small_world, work

AGENTS: list[dict[str, Any]] = [{"namespaces": ["default"], "matchLabels": {"app": "agent"}}]


def choosing(value: Any = AGENTS, settings: Settings = DOVETAIL) -> Settings:
    """Return settings with the pods chosen."""
    return replace(settings, daemon_like_pods=read_daemon_like(value, "daemonLikePods"))


def _town(settings: Settings) -> Town:
    town = Town(kind("m", "0.10"), settings=settings)
    town.pool(disruption={"consolidationSavingsThreshold": 0.01})
    for name in ("a", "b"):
        town.node(name, "m", conditions=[{"type": "Consolidatable", "status": "True"}])
        town.pod(
            f"agent-{name}", name, cpu="3", labels={"app": "agent"}, annotations={"karpenter.sh/do-not-disrupt": "true"}
        )
    town.pod("web", "b", cpu="200m")
    return town


def _commands(town: Town) -> list[tuple[str, tuple[str, ...], int]]:
    question = town.question()
    cluster = with_daemon_like(question.cluster, question.settings.daemon_like)
    found = plan_round(replace(question, cluster=cluster)).commands
    return [(command.action.value, command.nodes, command.pods) for command in found]


def test_a_node_with_such_pods_only_is_empty() -> None:
    """Neither the pod nor its do-not-disrupt keeps the node, and nothing restarts."""
    assert _commands(_town(DOVETAIL)) == []
    assert _commands(_town(choosing())) == [("deleteEmpty", ("a",), 0)]


@pytest.mark.parametrize(
    "value",
    [
        [],
        [{"namespaces": ["other"], "matchLabels": {"app": "agent"}}],
        [{"matchLabels": {"app": "other"}}],
        [{"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}],
    ],
)
def test_other_pods_are_as_ever(value: Any) -> None:
    """Other namespaces and labels are not chosen. The last one chooses the pod that keeps nothing."""
    assert _commands(_town(choosing(value))) == []


def test_karpenters_decisions_stay() -> None:
    """Under Karpenter's rules such a pod moves like any other."""
    assert _commands(_town(choosing(settings=KARPENTER_1_15))) == _commands(_town(KARPENTER_1_15)) == []


def test_they_still_take_room() -> None:
    """A moved pod does not land where such a pod has the room."""
    town = _town(choosing())
    town.pod("large", "a", cpu="900m")
    town.pod("more", "b", cpu="500m")
    assert _commands(town) == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "daemonLikePods is {}; write a list such as"),
        (["x"], r'daemonLikePods\[0\] is "x"; write a map'),
        ([{}], r"daemonLikePods\[0\] selects every pod"),
        ([{"namespaces": ["a"]}], r"daemonLikePods\[0\] selects every pod"),
        ([{"labels": {}}], r'daemonLikePods\[0\] has the field "labels"; valid fields: namespaces, matchLabels'),
        ([{"namespaces": "a", "matchLabels": {"a": "b"}}], r'daemonLikePods\[0\]\.namespaces is "a"; write a list'),
        ([{"matchLabels": {"a": 3}}], r"daemonLikePods\[0\] is not a label selector"),
        ([{"matchExpressions": [{"key": "a", "operator": "Near"}]}], r"daemonLikePods\[0\]: "),
    ],
)
def test_bad_settings(value: Any, problem: str) -> None:
    """One sentence names the entry and the field."""
    with pytest.raises(InputError, match=problem):
        read_daemon_like(value, "daemonLikePods")


def test_the_controller_removes_such_nodes() -> None:
    """In the simulated cluster the engine takes nodes that hold nothing else for empty."""
    world = small_world(nodes=3, consolidateAfter="30s", budgets=[{"nodes": "100%"}])
    world.workloads.add(work("agent", replicas=3, cpu="3"))
    settle(world, 30)
    chosen = choosing([{"matchLabels": {"app": "agent"}}])
    host = world.add_engine(chosen)
    host.start()
    world.run(world.now + 3 * MINUTE)
    assert host.engine.rounds > 0
    assert not {"n0", "n1", "n2"} & set(world.store.nodes)
