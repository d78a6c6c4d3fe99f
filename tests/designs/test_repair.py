"""Node repair (docs/rules.md#repair): candidates, order, budgets, breaker, and what blocks it."""

import dataclasses
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.refusal import Refusal
from dovetail.lifecycle.effects.claim_effects import drain_bound
from dovetail.model.karpenter import FeatureGate, KarpenterSettings
from dovetail.model.objects import Condition
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.model.verdicts import Gate
from tests.support.design_world import NOW, Town, kind, moved

MINUTE = timedelta(minutes=1)
DEAD = {"condition": "Ready", "status": "Unknown", "for": "10m"}


def town(nodes: int = 10, *, settings: Settings = DOVETAIL, **disruption: Any) -> Town:
    """Build a pool that repairs nodes with a silent kubelet; each node has one pod, the last one has room."""
    made = Town(kind("m", "0.20"), settings=settings)
    rules = {"repair": [DEAD], "consolidateAfter": "Never", "budgets": [{"nodes": "100%"}], **disruption}
    made.pool(disruption=rules)
    for number in range(nodes):
        made.node(f"n{number}", "m")
        made.pod(f"p{number}", f"n{number}", labels={"app": "a"})
    return made


def fall_ill(made: Town, name: str, since: timedelta, type_: str = "Ready", status: str = "Unknown") -> None:
    """Give a node a condition for this long."""
    node = made.nodes[name]
    entry = Condition(type=type_, status=status, last_transition_time=made.now - since)
    others = tuple(item for item in node.status.conditions if item.type != type_)
    made.nodes[name] = msgspec.structs.replace(
        node, status=msgspec.structs.replace(node.status, conditions=(*others, entry))
    )


def annotated(made: Town, name: str, **annotations: str) -> None:
    """Add annotations of karpenter.sh to a node."""
    node = made.nodes[name]
    added = {f"karpenter.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
    made.nodes[name] = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=added))


@pytest.mark.parametrize(
    ("since", "type_", "status", "goes"),
    [
        (10 * MINUTE, "Ready", "Unknown", True),
        (10 * MINUTE - timedelta(seconds=1), "Ready", "Unknown", False),
        (60 * MINUTE, "Ready", "False", False),
        (60 * MINUTE, "KernelDeadlock", "True", False),
    ],
)
def test_a_condition_for_long_enough(since: timedelta, type_: str, status: str, goes: bool) -> None:
    """Repair needs the exact condition and status for at least `for`."""
    made = town()
    fall_ill(made, "n3", since, type_, status)
    assert moved(made.act()) == (("deleteUnhealthy", ("n3",)) if goes else None)


def test_a_replacement_comes_first_where_pods_need_one() -> None:
    """Pods without room get a new node before the unhealthy node goes."""
    made = Town(kind("m", "0.20"))
    made.pool(disruption={"repair": [DEAD], "consolidateAfter": "Never"})
    made.node("n", "m")
    made.pod("p", "n", cpu="3")
    fall_ill(made, "n", 20 * MINUTE)
    command = made.act()
    assert moved(command) == ("replaceUnhealthy", ("n",))
    assert command is not None
    assert len(command.replacements) == 1


def test_the_longest_unhealthy_goes_first() -> None:
    """The node that is unhealthy longest goes first, then by name."""
    made = town(budgets=[{"nodes": "1"}])
    for name, minutes in (("n1", 20), ("n2", 30)):
        fall_ill(made, name, minutes * MINUTE)
    assert moved(made.act()) == ("deleteUnhealthy", ("n2",))


@pytest.mark.parametrize(
    ("nodes", "sick", "goes"),
    [(10, 2, True), (10, 3, False), (3, 1, True), (3, 2, False), (101, 21, True), (101, 22, False)],
)
def test_the_breaker(nodes: int, sick: int, goes: bool) -> None:
    """Repair stops with a warning if more than 20 % (rounded up) of a pool's nodes are unhealthy."""
    made = town(nodes)
    for number in range(sick):
        fall_ill(made, f"n{number}", (1 if number else 20) * MINUTE)  # covered counts, long enough or not
    result = made.round()
    assert bool(result.commands) is goes
    assert any("nothing is repaired" in text for text in result.warnings) is not goes


def test_claims_that_never_joined_do_not_open_the_breaker() -> None:
    """The breaker counts nodes, not NodeClaims without one: 5 ill of 10 stay held beside 20 claims."""
    made = town(10)
    for number in range(5):
        fall_ill(made, f"n{number}", 20 * MINUTE)
    for number in range(20):
        made.node(f"claim{number}", "m")
        del made.nodes[f"claim{number}"]
    result = made.round()
    assert result.commands == ()
    assert any("5 of 10 nodes are unhealthy" in text for text in result.warnings)
    verdict = next(entry for entry in result.verdicts if entry.node == "n0")
    assert (verdict.verdict, verdict.gates[-1].figures["nodes"]) == ("health", 10)


def test_the_breaker_is_asked_again_at_validation() -> None:
    """A repair that was decided before too many nodes fell ill is refused when it is validated."""
    made = town(10)
    fall_ill(made, "n0", 20 * MINUTE)
    command = made.act()
    assert command is not None
    decider = Decider()
    assert decider.revalidate(command, made.question()) == command
    for number in (1, 2):
        fall_ill(made, f"n{number}", MINUTE)
    answer = decider.revalidate(command, made.question())
    assert isinstance(answer, Refusal)
    assert (answer.gate, "3 of 10 nodes are unhealthy" in answer.why) == (Gate.HEALTH, True)


@pytest.mark.parametrize(
    ("annotations", "goes"),
    [
        ({"do_not_disrupt": "true"}, True),
        ({"do_not_repair": "true"}, False),
        ({"do_not_repair": "True"}, True),
    ],
)
def test_what_a_node_says(annotations: dict[str, str], goes: bool) -> None:
    """The annotation do-not-repair blocks repair; do-not-disrupt does not."""
    made = town()
    fall_ill(made, "n3", 20 * MINUTE)
    annotated(made, "n3", **annotations)
    assert (made.act() is not None) is goes


@pytest.mark.parametrize(
    ("budgets", "goes"),
    [
        ([{"nodes": "1"}], True),
        ([{"nodes": "0"}], False),
        ([{"nodes": "0", "reasons": ["Unhealthy"]}], False),
        ([{"nodes": "0", "reasons": ["Drifted"]}], True),
    ],
)
def test_budgets_count_marked_nodes_only(budgets: list[dict[str, Any]], goes: bool) -> None:
    """An unready node does not use up the budget of its own repair."""
    made = town(budgets=budgets)
    fall_ill(made, "n3", 20 * MINUTE)
    assert (made.act() is not None) is goes


@pytest.mark.parametrize(
    ("drain", "lifted"), [(None, False), ("0s", True), ("5m", True)], ids=["no bound", "at once", "five minutes"]
)
def test_pods_hold_a_repair_without_a_bounded_drain(drain: str | None, lifted: bool) -> None:
    """A PDB or a protected pod blocks repair unless the drain is bounded."""
    rule = DEAD if drain is None else {**DEAD, "drainFor": drain}
    for guard in ("pdb", "annotation"):
        made = town(repair=[rule])
        fall_ill(made, "n3", 20 * MINUTE)
        if guard == "pdb":
            made.pdb("guard", {"app": "a"}, 0)
        else:
            made.pod("p3", "n3", annotations={"karpenter.sh/do-not-disrupt": "true"})
        assert (made.act() is not None) is lifted


def test_repair_is_the_first_method_and_health_does_not_hold_it() -> None:
    """Repair comes before drift and ignores health limits."""
    made = town(health={"notReadyNodes": "0"})
    made.node("old", "m", drifted=MINUTE)
    fall_ill(made, "n3", 20 * MINUTE)
    assert moved(made.act()) == ("deleteUnhealthy", ("n3",))


def test_a_pause_holds_repair_too() -> None:
    """A paused pool is not repaired."""
    made = town()
    fall_ill(made, "n3", 20 * MINUTE)
    pool = made.pools["default"]
    meta = msgspec.structs.replace(pool.metadata, annotations={"dovetail.dev/paused": "true"})
    made.pools["default"] = msgspec.structs.replace(pool, metadata=meta)
    assert made.act() is None


def test_where_karpenter_repairs_it_is_left_alone() -> None:
    """With Karpenter's gate NodeRepair, Dovetail only warns; Karpenter's profile has no repair."""
    gates = KarpenterSettings(feature_gates=((FeatureGate.NODE_REPAIR, True),))
    made = town(settings=dataclasses.replace(DOVETAIL, karpenter=gates))
    fall_ill(made, "n3", 20 * MINUTE)
    result = made.round()
    assert result.commands == ()
    assert any("NodeRepair" in text for text in result.warnings)
    theirs = town(settings=KARPENTER_1_15)
    fall_ill(theirs, "n3", 20 * MINUTE)
    assert theirs.act() is None


def test_the_round_looks_again_when_repair_is_due() -> None:
    """The next change includes the time at which a condition has lasted long enough."""
    made = town()
    fall_ill(made, "n3", 4 * MINUTE)
    assert made.round().next_change == NOW + 6 * MINUTE


def test_pools_without_repair_show_no_such_method() -> None:
    """A cluster without repair rules behaves as before."""
    made = town(repair=[])
    assert next(entry.method.value for entry in made.round(every_method=True).methods) == "empty"
    assert next(entry.method.value for entry in town().round(every_method=True).methods) == "unhealthy"


@pytest.mark.parametrize(
    ("present", "written"),
    [
        (None, True),
        ("2026-05-13T12:00:00Z", False),
        ("2026-05-13T12:00:01Z", True),
        ("2026-05-13T11:00:00Z", False),
        ("nonsense", True),
    ],
)
def test_a_drain_is_only_ever_bounded_earlier(present: str | None, written: bool) -> None:
    """The annotation that ends a drain is only ever moved to an earlier time."""
    annotations = {} if present is None else {"karpenter.sh/nodeclaim-termination-timestamp": present}
    claim = {"metadata": {"name": "c", "annotations": annotations}}
    until = NOW.replace(year=2026, month=5, day=13, hour=12, minute=0, second=0, microsecond=0)
    assert (drain_bound(claim, until) is not None) is written
