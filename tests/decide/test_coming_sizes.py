"""Moved pods are simulated with the size with which they come back: VerticalPodAutoscalers, and owners that grew."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.decide.decider import Decider
from dovetail.model.coming_size import GrownSize
from dovetail.model.objects import PodSpec, ReplicaSet, VerticalPodAutoscaler
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.plan.explanation import explain
from dovetail.scheduling.pods.coming_sizes import coming_spec, read_advice
from dovetail.scheduling.pods.requests import spec_requests
from tests.support.design_world import Town, kind, moved

FREE = {"consolidationSavingsThreshold": 0}


def vpa(cpu: str = "3", *, mode: str | None = "Auto", policies: Iterable[dict[str, Any]] = (), **target: Any) -> Any:
    """Return a VerticalPodAutoscaler of the Deployment `web` that recommends so many CPUs for container `c`."""
    tree: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", **target},
            "resourcePolicy": {"containerPolicies": list(policies)},
        },
        "status": {"recommendation": {"containerRecommendations": [{"containerName": "c", "target": {"cpu": cpu}}]}},
    }
    if mode is not None:
        tree["spec"]["updatePolicy"] = {"updateMode": mode}
    return msgspec.convert(tree, VerticalPodAutoscaler, strict=False)


def replica_set() -> ReplicaSet:
    """Return the ReplicaSet `rs` of the Deployment `web`."""
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d"}
    tree = {"metadata": {"name": "rs", "namespace": "default", "uid": "rs", "ownerReferences": [owner]}}
    return msgspec.convert(tree, ReplicaSet, strict=False)


def pair(*others: Any, settings: Settings = DOVETAIL, cpu: str = "1500m") -> Town:
    """Return two nodes of 4 CPUs with a pod each; one would hold both as they are."""
    town = Town(kind("m", "0.10"), settings=settings)
    town.pool(disruption=FREE)
    condition = [{"type": "Consolidatable", "status": "True"}]
    for name in ("a", "b"):
        town.node(name, "m", conditions=condition)
        town.pod(f"p-{name}", name, cpu=cpu)
    town.others.extend(others)
    return town


def test_pods_that_come_back_as_they_are_are_moved() -> None:
    """Without an autoscaler one node goes."""
    assert moved(pair(replica_set()).act()) == ("deleteCost", ("a",))


@pytest.mark.parametrize("mode", ["Auto", "Recreate", "Initial", "InPlaceOrRecreate", None])
def test_an_autoscaler_that_grows_pods_keeps_their_node(mode: str | None) -> None:
    """In every mode but Off a pod that is created gets the target: 3 CPUs don't fit beside 1.5 on a node of 4."""
    town = pair(vpa(mode=mode), replica_set())
    assert town.act() is None
    verdict = next(entry for entry in town.round().verdicts if entry.node == "a")
    assert "Its pod default/p-a comes back with cpu 3 (VerticalPodAutoscaler default/web)" in verdict.why


@pytest.mark.parametrize(
    "other",
    [
        vpa(mode="Off"),
        vpa(policies=[{"containerName": "c", "mode": "Off"}]),
        vpa(policies=[{"containerName": "*", "mode": "Off"}]),
        vpa(policies=[{"containerName": "c", "controlledResources": ["memory"]}]),
        vpa(name="another"),
        vpa(kind="StatefulSet"),
        vpa(cpu="2"),
        vpa(cpu="lots"),
        msgspec.convert({"metadata": {"name": "new", "namespace": "default"}}, VerticalPodAutoscaler, strict=False),
    ],
)
def test_autoscalers_that_change_nothing_here(other: Any) -> None:
    """Modes and policies that are off, other workloads, targets that still fit or can't be read."""
    assert moved(pair(other, replica_set()).act()) == ("deleteCost", ("a",))


def test_a_smaller_target_makes_room() -> None:
    """Pods that are created again with less than they have fit where they did not."""
    assert pair(replica_set(), cpu="2500m").act() is None
    assert moved(pair(vpa("1"), replica_set(), cpu="2500m").act()) == ("deleteCost", ("a",))


def test_the_deployment_is_found_by_the_hash_without_its_replica_set() -> None:
    """A capture without ReplicaSets has the template's hash on the pods."""
    town = pair(vpa())
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9", "uid": "rs"}
    for name in ("a", "b"):
        town.pod(f"p-{name}", name, cpu="1500m", labels={"pod-template-hash": "5d9"}, ownerReferences=[owner])
    assert town.act() is None


def test_karpenters_decisions_stay() -> None:
    """Under Karpenter's rules a pod keeps its size, as Karpenter sees it."""
    with_vpa, without = pair(vpa(), replica_set(), settings=KARPENTER_1_15), pair(settings=KARPENTER_1_15)
    assert moved(with_vpa.act()) == moved(without.act())
    assert with_vpa.act() is not None


@pytest.mark.parametrize(
    ("policy", "moves"),
    [
        ({"maxAllowed": {"cpu": "2"}}, True),
        ({"maxAllowed": {"cpu": "4"}}, False),
        ({"maxAllowed": {"cpu": "some"}}, False),
        ({"minAllowed": {"cpu": "3500m"}, "maxAllowed": {"cpu": "2"}}, True),
        ({"controlledValues": "RequestsOnly"}, True),
        ({"controlledValues": "RequestsAndLimits"}, False),
    ],
)
def test_what_the_admission_controller_would_allow(policy: dict[str, Any], *, moves: bool) -> None:
    """The target is kept within the policy, and within the limits of a container if these stay as they are."""
    town = pair(vpa(policies=[{"containerName": "c", **policy}]), replica_set())
    container = {"name": "c", "resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": "2"}}}
    for name in ("a", "b"):
        town.pod(f"p-{name}", name, spec={"containers": [container]})
    assert moved(town.act()) == (("deleteCost", ("a",)) if moves else None)


def test_a_target_below_what_is_allowed() -> None:
    """The policy's minimum counts, though the recommendation was made before it."""
    least = [{"containerName": "*", "minAllowed": {"cpu": "3"}}]
    assert pair(vpa("1", policies=least), replica_set()).act() is None


@pytest.mark.parametrize(("cpu", "types"), [("200", ()), ("10", ("huge",))])
def test_a_target_that_no_machine_has(cpu: str, types: tuple[str, ...]) -> None:
    """A warning names the autoscaler, what it asks for and what there is: types that no pool launches don't count."""
    town = pair(vpa(cpu), replica_set())
    town.kinds.update({name: kind(name, "9", cpu=64) for name in types})
    only = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m"]}
    town.pool(disruption=FREE, requirements=[only])
    (text,) = [entry for entry in town.round().warnings if "Vertical" in entry]
    assert text.startswith(
        f"VerticalPodAutoscaler default/web: status.recommendation asks for {cpu} cpu, and no machine that is there or "
        "that a NodePool can launch has more than 4; pods of Deployment web can't come back if they are moved."
    )
    assert "maxAllowed" in text


def test_owners_that_grew_are_simulated_with_the_larger_size() -> None:
    """Without an autoscaler the size with which an owner's last pods came back counts, where it is larger."""
    town = pair()
    grown = {"rs": GrownSize(owner="ReplicaSet default/rs", containers=(("c", {"cpu": "3", "memory": "1Mi"}),))}
    result = Decider().round(town.question(grown=grown))
    assert result.commands == ()
    verdict = next(entry for entry in result.verdicts if entry.node == "a")
    assert "Its pod default/p-a comes back with cpu 3 (as the last pods of ReplicaSet default/rs did)" in verdict.why
    assert Decider().round(town.question(grown={"other": grown["rs"]})).commands


@pytest.mark.parametrize(
    ("containers", "cpu"),
    [
        ([("", "500m"), ("", "500m")], 2500),
        ([("c0", "500m")], 2500),
        ([("", "500m"), ("", "500m"), ("", "3")], 4000),
        ([("a", "500m"), ("side", "700m")], 2700),
    ],
)
def test_containers_without_names(containers: list[tuple[str, str]], cpu: int) -> None:
    """Captures leave names out: then only the sum counts, and containers beyond the recommended ones keep theirs."""
    tree = {
        "containers": [{"name": name, "resources": {"requests": {"cpu": text}}} for name, text in containers],
    }
    target = [{"containerName": "a", "target": {"cpu": "2"}}, {"containerName": "b", "target": {"cpu": "500m"}}]
    given = msgspec.structs.replace(
        vpa(), status=msgspec.convert({"recommendation": {"containerRecommendations": target}}, type(vpa().status))
    )
    advice = read_advice(given)
    assert advice is not None
    assert spec_requests(coming_spec(msgspec.convert(tree, PodSpec, strict=False), advice))["cpu"] == cpu


def test_memory_never_changes_the_answer() -> None:
    """A decider that remembers earlier rounds follows targets that change."""
    town, remembering = pair(replica_set()), Decider()
    for cpu in ("1", "3", "3", "2", "3500m", "1"):
        town.others[:] = [replica_set(), vpa(cpu)]
        question = town.question()
        one, other = remembering.round(question), Decider(memory=False).round(question)
        assert [moved(command) for command in one.commands] == [moved(command) for command in other.commands]
        assert {entry.node: entry.why for entry in one.verdicts} == {entry.node: entry.why for entry in other.verdicts}


def test_spread_counts_pods_that_come_back_larger() -> None:
    """A moved pod of another size still counts for the topology spread of its workload."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }

    def town(*others: Any) -> Town:
        found = pair(*others, settings=replace(DOVETAIL))
        found.node("c", "m")
        for name in ("a", "b", "c"):
            parts = {"spec": {"topologySpreadConstraints": [spread]}, "labels": {"app": "web"}}
            found.pod(f"p-{name}", name, cpu="500m", **parts)
        return found

    assert moved(town(replica_set()).act()) == moved(town(replica_set(), vpa("600m")).act())


def test_explain_says_with_which_size_each_pod_lands() -> None:
    """The table of landings names the size, wherever the pod goes; nothing is said of new nodes if it goes nowhere."""
    town = pair(vpa("2"), replica_set())
    told = explain(town.question(), "a")
    assert told.to_dict()["landings"][0]["why"] == "it comes back with cpu 2 (VerticalPodAutoscaler default/web)"
    assert "Where its pods would land; no new node is needed:" in told.text
    lost = explain(pair(vpa("9"), replica_set()).question(), "a").text
    assert "Where its pods would land; 1 of 1 land nowhere:" in lost
