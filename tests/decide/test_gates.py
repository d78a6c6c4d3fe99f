"""Every gate by its identifier, with the sentence that names the cause (docs/rules.md#gates)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.decide import verdict
from dovetail.decide.decider import Decider
from dovetail.model import names
from dovetail.model.objects import NodePool
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from tests.support.design_world import NOW, Town, kind, moved

FREE = {"consolidationSavingsThreshold": 0}


def _town(**disruption: Any) -> Town:
    """Return a node `n` with a pod that fits on `other`, which is protected."""
    town = Town(kind("m", "0.20"), kind("xl", "2.00", cpu=16, memory=64))
    town.pool(disruption={**FREE, **disruption})
    town.node("n", "m")
    town.pod("p", "n", labels={"app": "web"})
    town.node("other", "xl", annotations={names.DO_NOT_DISRUPT: "true"})
    town.pod("q", "other")
    return town


def _change(item: Any, **parts: Any) -> Any:
    """Replace parts of an object's metadata."""
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, **parts))


def _no_claim(town: Town) -> None:
    del town.claims["n"]


def _no_pool(town: Town) -> None:
    town.pools.clear()


def _deleting(town: Town) -> None:
    town.claims["n"] = _change(town.claims["n"], deletion_timestamp=NOW)


def _not_initialized(town: Town) -> None:
    labels = {key: value for key, value in town.nodes["n"].metadata.labels.items() if key != names.INITIALIZED_LABEL}
    town.nodes["n"] = _change(town.nodes["n"], labels=labels)


def _two_pdbs(town: Town) -> None:
    town.pdb("one", {"app": "web"}, allowed=1)
    town.pdb("two", {"app": "web"}, allowed=1)


def _unknown_type(town: Town) -> None:
    town.nodes["n"] = _change(town.nodes["n"], labels={**town.nodes["n"].metadata.labels, names.INSTANCE_TYPE: "zz"})


def _no_zone(town: Town) -> None:
    town.node("n", "m", without=[names.ZONE])


def _settling(town: Town) -> None:
    town.stabilized_until = NOW + timedelta(minutes=3)


def _static(town: Town) -> None:
    pool = town.pools["default"]
    town.pools["default"] = msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, replicas=2))
    assert isinstance(town.pools["default"], NodePool)


@pytest.mark.parametrize(
    ("verdict", "said", "disruption", "change"),
    [
        pytest.param("eligible", "save money", {}, lambda town: None, id="nothing in the way"),
        pytest.param("managed", "no NodeClaim", {}, _no_claim, id="no claim"),
        pytest.param("managed", "NodePool default does not exist", {}, _no_pool, id="no pool"),
        pytest.param("marked-for-deletion", "NodeClaim is being deleted", {}, _deleting, id="deleting"),
        pytest.param("initialized", "not initialized", {}, _not_initialized, id="not initialized"),
        pytest.param("nominated", "on their way", {}, lambda t: setattr(t, "nominated", ("n",)), id="nominated"),
        pytest.param(
            "node-do-not-disrupt",
            "karpenter.sh/do-not-disrupt=true",
            {},
            lambda t: t.node("n", "m", annotations={names.DO_NOT_DISRUPT: "true"}),
            id="do-not-disrupt on the node",
        ),
        pytest.param(
            "pod-do-not-disrupt",
            "default/p may not be disrupted for 90m from its start: 30m to go",
            {},
            lambda t: t.pod("p", "n", annotations={names.DO_NOT_DISRUPT: "90m"}),
            id="do-not-disrupt for a while",
        ),
        pytest.param(
            "eligible",
            "save money",
            {},
            lambda t: t.pod("p", "n", annotations={names.DO_NOT_DISRUPT: "30m"}),
            id="do-not-disrupt that has passed",
        ),
        pytest.param("pdb", "default/web allows no", {}, lambda t: t.pdb("web", {"app": "web"}, allowed=0), id="a PDB"),
        pytest.param("pdb", "2 PodDisruptionBudgets", {}, _two_pdbs, id="two PDBs, even if both allow"),
        pytest.param("pool-policy", "WhenEmpty", {"consolidationPolicy": "WhenEmpty"}, lambda t: None, id="WhenEmpty"),
        pytest.param("pool-policy", "static", {}, _static, id="a static pool"),
        pytest.param("consolidate-after", "Never", {"consolidateAfter": "Never"}, lambda t: None, id="Never"),
        pytest.param(
            "consolidate-after", "ends in 1h", {"consolidateAfter": "2h"}, lambda t: None, id="consolidateAfter"
        ),
        pytest.param(
            "grace-period", "ends in 30m", {"consolidationGracePeriod": "90m"}, lambda t: None, id="grace period"
        ),
        pytest.param("instance-type-known", "zz is not in the catalogue", {}, _unknown_type, id="unknown type"),
        pytest.param("instance-type-known", names.ZONE, {}, _no_zone, id="no zone"),
        pytest.param("stabilization", "3m more", {}, _settling, id="stabilization"),
        pytest.param(
            "budget", "budget 1 (nodes: 0) allows 0", {"budgets": [{"nodes": "0"}]}, lambda t: None, id="budget"
        ),
        pytest.param(
            "simulation",
            "default/p finds no place",
            {},
            lambda t: t.pod("p", "n", spec={"nodeSelector": {"example.com/rack": "9"}}),
            id="simulation",
        ),
        pytest.param(
            "price", "No cheaper replacement fits the pods", {}, lambda t: t.pod("p", "n", cpu="3900m"), id="price"
        ),
        pytest.param(
            "savings-threshold",
            "saves $0.20/h; restarting its pods must save at least $1.00/h",
            {"consolidationSavingsThreshold": 1},
            lambda t: None,
            id="threshold",
        ),
        pytest.param("balanced", "a score of", {"consolidationPolicy": "Balanced"}, lambda t: None, id="Balanced"),
    ],
)
def test_gate(verdict: str, said: str, disruption: dict[str, Any], change: Callable[[Town], None]) -> None:
    """A node stops at the gate, and the sentence names the cause."""
    town = _town(**disruption)
    if verdict == "price":
        town.pod("big", "other", cpu="15900m")
    if verdict == "balanced":
        town.fill("n", 9)
    change(town)
    found = next(entry for entry in town.round(every_method=True).verdicts if entry.node.removeprefix("claim-") == "n")
    assert found.verdict == verdict, found
    assert said in found.why, found.why


def test_furthest_gate_decides() -> None:
    """If no method takes a node, the verdict is the furthest gate: here, the budget of a drifted node."""
    town = _town(consolidateAfter="2h", budgets=[{"nodes": "0", "reasons": ["Drifted"]}])
    town.node("n", "m", drifted=timedelta(hours=1))
    assert town.verdicts()["n"] == "budget"


def test_unreadable_annotations_are_reported() -> None:
    """An annotation that cannot be read protects nothing, costs nothing and causes a warning."""
    town = _town()
    town.pod("p", "n", annotations={names.DO_NOT_DISRUPT: "perhaps", names.DISRUPTION_COST: "much"})
    result = town.round(every_method=True)
    assert {entry.verdict for entry in result.verdicts if entry.node == "n"} == {"eligible"}
    assert any("perhaps" in text for text in result.warnings)
    assert any("much" in text for text in result.warnings)


def test_forceful_expiry_first_is_a_warning() -> None:
    """A warning counts the claims that Karpenter expires before the graceful expireAfter (docs/rules.md#karpenter)."""
    town = _town(expireAfter="100h")
    town.node("n", "m", life="50h")
    assert any("1 NodeClaims" in text and "forcefully" in text for text in town.round().warnings)


def _with_claim(town: Town, **fields: Any) -> None:
    claim = town.claims["n"]
    town.claims["n"] = msgspec.structs.replace(claim, spec=msgspec.structs.replace(claim.spec, **fields))


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize(
    ("settings", "guard", "verdict"),
    [
        (DOVETAIL, "pdb", "eligible"),
        (DOVETAIL, "two pdbs", "eligible"),
        (DOVETAIL, "annotation", "pod-do-not-disrupt"),
        (KARPENTER_1_15, "pdb", "pdb"),
        (KARPENTER_1_15, "annotation", "pod-do-not-disrupt"),
    ],
)
def test_an_empty_node_asks_no_pdb(settings: Settings, guard: str, verdict: str, memory: bool) -> None:
    """A PDB over a DaemonSet pod holds no empty node, a pod that says do-not-disrupt does; Karpenter asks PDBs too."""
    town = Town(kind("m", "0.20"), settings=settings)
    town.pool()
    town.node("n", "m", conditions=[{"type": "Consolidatable", "status": "True"}])
    daemon = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]
    notes = {names.DO_NOT_DISRUPT: "true"} if guard == "annotation" else {}
    town.pod("d", "n", labels={"app": "d"}, ownerReferences=daemon, annotations=notes)
    for number in range({"pdb": 1, "two pdbs": 2}.get(guard, 0)):
        town.pdb(f"guard{number}", {"app": "d"}, allowed=0)
    decider = Decider(memory=memory)
    result = decider.round(town.question(), every_method=True)
    (found,) = result.verdicts
    assert (found.verdict, result.brief_verdicts[0].verdict) == (verdict, verdict)
    taken = [command.nodes for command in result.commands]
    assert taken == ([("n",)] if verdict == "eligible" else [])
    if taken:
        assert decider.revalidate(result.commands[0], town.question()) == result.commands[0]


@pytest.mark.parametrize(("period", "verdict"), [("5m", "eligible"), ("banana", "pdb"), ("Never", "pdb")])
def test_a_termination_grace_period_that_can_be_read_lifts_protection(period: str, verdict: str) -> None:
    """A readable terminationGracePeriod lifts protection for drift; an unreadable one causes a warning."""
    town = _town(consolidateAfter="Never")
    town.node("n", "m", drifted=timedelta(hours=1))
    town.pdb("web", {"app": "web"}, allowed=0)
    _with_claim(town, termination_grace_period=period)
    assert town.verdicts()["n"] == verdict
    said = [text for text in town.round().warnings if text.startswith("NodeClaim claim-n: spec.terminationGracePeriod")]
    assert bool(said) is (verdict == "pdb")


def test_an_expiry_that_cannot_be_read_is_told() -> None:
    """A node with an unreadable expiry never expires and a warning says why; Never is readable."""
    town = _town()
    _with_claim(town, expire_after="banana")
    (warning,) = town.round().warnings
    assert warning == 'NodeClaim claim-n: spec.expireAfter ("banana") is not a duration; the node never expires'


def test_a_huge_cluster_leaves_simulations_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above a number of pods, nodes that were not simulated are listed as eligible; the plan is the same.

    What is refused for certain, without a simulation, is still told.
    """
    town = Town(kind("m", "0.20"), kind("s", "0.05", cpu=1, memory=4))
    town.pool(disruption={**FREE, "budgets": [{"nodes": "1"}]})
    town.node("idle", "s")
    for name, cpu in (("a", "500m"), ("b", "1900m"), ("c", "1900m"), ("full", "3900m")):
        town.node(name, "m")
        town.fill(name, 1, cpu=cpu)
    plain = town.round()
    told = {"a": "eligible", "b": "eligible", "c": "eligible", "full": "price", "idle": "eligible"}
    assert {entry.node: entry.verdict for entry in plain.verdicts} == told
    monkeypatch.setattr(verdict, "PODS_MAX", 0)
    monkeypatch.setattr(verdict, "FIRST_GATE_PODS_MAX", 0)
    hasty = town.round()
    assert hasty.commands == plain.commands
    assert {entry.node: entry.verdict for entry in hasty.verdicts} == told
    waiting = [entry for entry in hasty.verdicts if "turn" in entry.gates[-1].why]
    assert [(entry.node, entry.verdict) for entry in waiting] == [("b", "eligible"), ("c", "eligible")]


@pytest.mark.parametrize(("idle", "goes"), [(timedelta(hours=1), True), (timedelta(minutes=1), False)])
def test_only_running_timers_close_destinations(idle: timedelta, goes: bool) -> None:
    """The setting closes only destinations whose consolidateAfter timer is running."""
    town = Town(kind("m", "0.20"), settings=replace(DOVETAIL, consolidate_after_hides_destinations=True))
    town.pool(disruption={"consolidateAfter": "10m", "consolidationSavingsThreshold": 0.01}, limits={"nodes": "0"})
    town.node("a", "m")
    town.pod("on-a", "a")
    town.node("b", "m", idle=idle)
    town.fill("b", 3, cpu="1000m")
    assert moved(town.act()) == (("deleteCost", ("a",)) if goes else None)


def test_room_that_fits_exactly_is_room() -> None:
    """A pod fits if it needs exactly the free room of the only other node."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0.01}, limits={"nodes": "0"})
    town.node("a", "m")
    town.pod("on-a", "a", cpu="1000m")
    town.node("b", "m")
    town.fill("b", 3, cpu="1000m")
    assert moved(town.act()) == ("deleteCost", ("a",))
