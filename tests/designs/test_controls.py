"""The controls beyond the five designs (docs/rules.md#controls), each rule as a table of cases."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.gates.budgets import flat_allowance
from dovetail.decide.in_flight import LeavingNode
from dovetail.decide.scene import Scene
from dovetail.model.command import Method
from dovetail.model.policies.policy import Reason
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from tests.support.design_world import NOW, Town, kind

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def annotate(town: Town, pool: str = "default", **annotations: str) -> None:
    """Add annotations of `dovetail.dev/` to a pool; `_` stands for `-`."""
    item = town.pools[pool]
    added = {f"dovetail.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    meta = msgspec.structs.replace(item.metadata, annotations={**item.metadata.annotations, **added})
    town.pools[pool] = msgspec.structs.replace(item, metadata=meta)


def stamp(at: datetime) -> str:
    """Return the time in RFC 3339 format."""
    return at.isoformat().replace("+00:00", "Z")


def empties(count: int, *, now: datetime = NOW, settings: Settings = DOVETAIL, **disruption: Any) -> Town:
    """Build a pool of empty nodes."""
    town = Town(kind("m", "0.20"), now=now, settings=settings)
    town.pool(disruption=disruption)
    for number in range(count):
        town.node(f"n{number:02d}", "m")
    return town


def gone(town: Town) -> int:
    """Return the number of nodes in the next command."""
    command = town.act()
    return 0 if command is None else len(command.nodes)


# ---------------------------------------------------------------- 13: rate budgets


def left_before(*entries: tuple[timedelta, int, str]) -> str:
    """Return a history of (how long ago, how many nodes, reason)."""
    return json.dumps(
        [
            {"at": stamp(NOW - ago), "nodes": nodes, "reason": reason, "command": f"c{place}"}
            for place, (ago, nodes, reason) in enumerate(entries)
        ]
    )


@pytest.mark.parametrize(
    ("budget", "history", "count"),
    [
        pytest.param({"nodes": "2", "per": "1h"}, None, 2, id="nothing began to leave"),
        pytest.param({"nodes": "2", "per": "1h"}, left_before((30 * MINUTE, 1, "Empty")), 1, id="one of two"),
        pytest.param({"nodes": "2", "per": "1h"}, left_before((30 * MINUTE, 2, "Empty")), 0, id="both"),
        pytest.param({"nodes": "2", "per": "1h"}, left_before((HOUR, 2, "Empty")), 2, id="an hour ago is out"),
        pytest.param(
            {"nodes": "2", "per": "1h"}, left_before((HOUR - timedelta(seconds=1), 2, "Empty")), 0, id="just inside"
        ),
        pytest.param({"nodes": "2", "per": "1h"}, left_before((30 * MINUTE, 2, "Drifted")), 0, id="all reasons count"),
        pytest.param(
            {"nodes": "2", "per": "1h", "reasons": ["Empty"]},
            left_before((30 * MINUTE, 2, "Drifted")),
            2,
            id="another reason does not",
        ),
        pytest.param({"nodes": "25%", "per": "1h"}, left_before((MINUTE, 2, "Empty")), 1, id="25 % of 10 is 3"),
        pytest.param({"nodes": "3", "per": "1h"}, "no JSON", 0, id="unreadable counts as full"),
        pytest.param({"nodes": "3", "per": "1h"}, '[{"at": "2026-01-01T00:00:00"}]', 0, id="no zone counts as full"),
        pytest.param({"nodes": "3", "per": "1h"}, "[" * 5000, 0, id="too deep counts as full"),
        pytest.param({"nodes": "0", "per": "1h"}, None, 0, id="none at all"),
        pytest.param(
            {"nodes": "0", "per": "1h", "schedule": "0 0 1 1 *", "duration": "1h"}, None, 10, id="not active now"
        ),
        pytest.param({"nodes": "2", "per": "200h"}, None, 0, id="longer than 168h is broken and allows nothing"),
        pytest.param({"nodes": "2", "per": "30s"}, None, 0, id="seconds are broken"),
    ],
)
def test_a_rate_budget(budget: dict[str, Any], history: str | None, count: int) -> None:
    """At most `nodes` nodes begin to leave within any span `per`, according to the history."""
    town = empties(10, budgets=[budget, {"nodes": "100%"}])
    if history is not None:
        annotate(town, recent_disruptions=history)
    assert gone(town) == count


def test_nodes_in_flight_are_not_subtracted_twice() -> None:
    """A node whose start is in the history counts once against the rate, although it is still leaving."""
    town = empties(10, budgets=[{"nodes": "3", "per": "1h"}])
    annotate(town, recent_disruptions=left_before((MINUTE, 2, "Empty")))
    for name in ("n00", "n01"):
        town.leaving[name] = LeavingNode(node=name, method=Method.EMPTY, since=NOW, command_id="c0")
    assert gone(town) == 1


def test_commands_in_validation_count_before_their_start() -> None:
    """Nodes of a command in validation use up the rate."""
    town = empties(10, budgets=[{"nodes": "3", "per": "1h"}])
    town.leaving["n00"] = LeavingNode(node="n00", method=Method.EMPTY, since=NOW, command_id="new")
    assert gone(town) == 2


def test_a_used_up_rate_says_when_the_next_may_go() -> None:
    """The gate `budget` names the time at which the oldest departure leaves the span."""
    town = empties(3, budgets=[{"nodes": "2", "per": "1h"}])
    annotate(town, recent_disruptions=left_before((20 * MINUTE, 1, "Empty"), (50 * MINUTE, 1, "Empty")))
    result = town.round()
    (verdict, *_) = result.verdicts
    assert verdict.verdict == "budget"
    last = verdict.gates[-1]
    assert last.figures["nextAt"] == stamp(NOW + 10 * MINUTE)
    assert "in 10m" in last.why
    assert result.next_change is not None
    assert result.next_change <= NOW + 10 * MINUTE


# ---------------------------------------------------------------- 14: windows that allow


def _time(day: int, hour: int, minute: int = 0, second: int = 0) -> datetime:
    """Return a moment of the week of Monday, 11 May 2026."""
    return datetime(2026, 5, 10 + day, hour, minute, second, tzinfo=UTC)


NIGHT = {"schedule": "0 22 * * *", "duration": "6h"}


@pytest.mark.parametrize(
    ("windows", "when", "count"),
    [
        ([NIGHT], _time(1, 21, 59, 59), 0),
        ([NIGHT], _time(1, 22), 5),
        ([NIGHT], _time(2, 3, 59, 59), 5),
        ([NIGHT], _time(2, 4), 0),
        ([], _time(1, 12), 5),
        ([{**NIGHT, "reasons": ["Drifted"]}], _time(1, 12), 5),
        ([{**NIGHT, "reasons": ["Empty"]}], _time(1, 12), 0),
        ([{**NIGHT, "reasons": []}], _time(1, 12), 0),
        ([NIGHT, {"schedule": "0 12 * * *", "duration": "1h"}], _time(1, 12, 30), 5),
        ([{"schedule": "nonsense", "duration": "1h"}], _time(1, 12), 0),
        ([{"schedule": "nonsense", "duration": "1h", "reasons": ["Drifted"]}], _time(1, 12), 5),
        ([{"schedule": "0 12 * * *"}], _time(1, 12, 30), 0),
    ],
    ids=str,
)
def test_a_window_that_allows(windows: Any, when: datetime, count: int) -> None:
    """A reason with windows is acted on only while one is open; an unreadable window never opens."""
    assert gone(empties(5, now=when, windows=windows)) == count


def test_outside_a_window_the_gate_says_when_it_opens() -> None:
    """Gate `window` comes before `budget` and names the time."""
    town = empties(2, now=_time(1, 12), windows=[NIGHT], budgets=[{"nodes": "0"}])
    verdict = town.round().verdicts[0]
    assert verdict.verdict == "window"
    assert verdict.gates[-1].figures["opensAt"] == "2026-05-11T22:00:00Z"


# ---------------------------------------------------------------- 15: minNodeAge


@pytest.mark.parametrize(
    ("age", "verdict"),
    [
        (2 * HOUR - timedelta(seconds=1), "min-node-age"),
        (2 * HOUR, "eligible"),
        (3 * HOUR, "eligible"),
    ],
    ids=str,
)
def test_min_node_age(age: timedelta, verdict: str) -> None:
    """A node below minNodeAge is no candidate for Empty and Underutilized; exactly that age is enough."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"minNodeAge": "2h", "consolidationSavingsThreshold": 0})
    town.node("empty", "m", age=age)
    town.node("used", "m", age=age)
    town.pod("p", "used")
    town.node("room", "m", age=100 * HOUR)
    town.pod("q", "room", cpu="3500m")
    found = town.verdicts()
    assert (found["empty"], found["used"]) == (verdict, verdict)


def test_drift_does_not_look_at_min_node_age() -> None:
    """Expiry and drift ignore minNodeAge."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"minNodeAge": "2h"})
    town.node("n", "m", age=MINUTE, drifted=MINUTE)
    assert town.verdicts()["n"] == "eligible"


def test_an_unreadable_min_node_age_stops_consolidation_only() -> None:
    """An unreadable minNodeAge blocks Empty and Underutilized only."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"minNodeAge": "soon"})
    town.node("empty", "m")
    town.node("drifted", "m", drifted=MINUTE)
    found = town.verdicts()
    assert found["empty"] == "consolidate-after"
    assert found["drifted"] == "eligible"
    assert any("minNodeAge" in text for text in town.round().warnings)


# ---------------------------------------------------------------- 16: pause


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("true", 0),
        (stamp(NOW + MINUTE), 0),
        (stamp(NOW), 3),
        (stamp(NOW - MINUTE), 3),
        ("2026-01-01", 0),
        ("false", 0),
        ("", 0),
        ("9999-12-31T23:59:59-12:00", 0),
    ],
)
def test_a_pause(value: str, count: int) -> None:
    """A pause is `true`, a future time, or any value that cannot be read."""
    town = empties(3)
    annotate(town, paused=value)
    assert gone(town) == count


def test_a_pause_shows_its_reason_and_an_odd_one_warns() -> None:
    """The gate `paused` follows `managed` and carries the text of the annotation."""
    town = empties(1)
    annotate(town, paused="true", paused_reason="release freeze")
    (verdict,) = town.round().verdicts
    assert [gate.gate.value for gate in verdict.gates] == ["managed", "paused"]
    assert "release freeze" in verdict.why
    annotate(town, paused="perhaps")
    assert any("perhaps" in text for text in town.round().warnings)


def test_a_pause_keeps_nodes_out_of_other_pools_commands() -> None:
    """A command never includes nodes of a paused pool."""
    town = Town(kind("m", "0.20"))
    for pool in ("default", "other"):
        town.pool(pool)
    town.node("a", "m", pool="default")
    town.node("b", "m", pool="other")
    annotate(town, "other", paused="true")
    command = town.act()
    assert command is not None
    assert command.nodes == ("a",)


def test_the_setting_pauses_everything_and_karpenter_knows_no_pause() -> None:
    """`paused: true` stops all pools; the profile karpenter-1.15 ignores all of these controls."""
    assert gone(empties(3, settings=dataclasses.replace(DOVETAIL, paused=True))) == 0
    karpenter = empties(3, settings=KARPENTER_1_15, windows=[{"schedule": "0 0 1 1 *", "duration": "1m"}])
    for name, claim in karpenter.claims.items():
        ready = msgspec.convert({"type": "Consolidatable", "status": "True"}, type(claim.status.conditions[0]))
        status = msgspec.structs.replace(claim.status, conditions=(*claim.status.conditions, ready))
        karpenter.claims[name] = msgspec.structs.replace(claim, status=status)
    annotate(karpenter, paused="true")
    assert gone(karpenter) == 3


# ---------------------------------------------------------------- 17: health


@pytest.mark.parametrize(
    ("limit", "sick", "nodes", "count"),
    [
        ("20%", 2, 10, 8),
        ("20%", 3, 10, 0),
        ("20%", 3, 11, 8),
        ("1", 1, 10, 9),
        ("1", 2, 10, 0),
        ("0", 0, 10, 10),
        ("0%", 1, 10, 0),
    ],
)
def test_not_ready_nodes(limit: str, sick: int, nodes: int, count: int) -> None:
    """More unready nodes than allowed (percentages round up) stop the pool."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"health": {"notReadyNodes": limit}})
    for number in range(nodes):
        town.node(f"n{number:02d}", "m", ready=number >= sick, annotations=_unless(number >= sick))
    assert gone(town) == count


def _unless(ready: bool) -> dict[str, str]:
    return {} if ready else {"karpenter.sh/do-not-disrupt": "true"}


def waiting(town: Town, name: str, since: timedelta, **spec: Any) -> None:
    """Add a pod that has been unschedulable since this time."""
    town.pod(name, cpu="64", spec=spec)
    pod = town.pods[name]
    entry = msgspec.structs.replace(pod.status.conditions[0], last_transition_time=town.now - since)
    town.pods[name] = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=(entry,)))


@pytest.mark.parametrize(
    ("since", "pods", "spec", "count"),
    [
        (5 * MINUTE, 2, {}, 0),
        (5 * MINUTE - timedelta(seconds=1), 2, {}, 2),
        (5 * MINUTE, 1, {}, 2),
        (5 * MINUTE, 2, {"nodeSelector": {"karpenter.sh/capacity-type": "spot"}}, 2),
        (5 * MINUTE, 2, {"nodeSelector": {"example.com/team": "x"}}, 2),
        (5 * MINUTE, 2, {"nodeSelector": {"kubernetes.io/arch": "amd64"}}, 0),
    ],
)
def test_pending_pods(since: timedelta, pods: int, spec: dict[str, Any], count: int) -> None:
    """Enough suitable pods that are unschedulable for long enough stop the pool; other pods do not count."""
    town = empties(2, health={"pendingPods": {"count": 2, "for": "5m"}})
    for number in range(pods):
        waiting(town, f"w{number}", since, **spec)
    assert gone(town) == count


def test_a_halted_pool_and_broken_limits_stop_voluntary_commands() -> None:
    """Any `dovetail.dev/halted` annotation holds the pool; so do unreadable health limits."""
    town = empties(2)
    annotate(town, halted=json.dumps({"why": "moved pods are not ready", "owners": ["default/Deployment/web"]}))
    (verdict, _) = town.round().verdicts
    assert verdict.verdict == "health"
    assert "default/Deployment/web" in verdict.why
    annotate(town, halted="?")
    assert gone(town) == 0
    assert gone(empties(2, health={"notReadyNodes": "lots"})) == 0


def test_an_alert_holds_all_pools() -> None:
    """An active alert holds all pools."""
    town = empties(2)
    assert town.round(alert="Alert TooManyErrors fires.").commands == ()
    assert town.round(alert="Alert TooManyErrors fires.").verdicts[0].verdict == "health"


# ---------------------------------------------------------------- 18: windows of a workload


@pytest.mark.parametrize(
    ("window", "when", "verdict"),
    [
        ("0 22 * * *; 6h", _time(1, 12), "pod-window"),
        ("0 22 * * *; 6h", _time(1, 23), "eligible"),
        ("TZ=Europe/Berlin 0 22 * * *; 6h", _time(1, 20), "eligible"),
        ("TZ=Europe/Berlin 0 22 * * *; 6h", _time(1, 19, 59), "pod-window"),
        ("nonsense", _time(1, 23), "pod-window"),
        ("0 22 * * *; forever", _time(1, 23), "pod-window"),
        ("0 22 * * *; 90s", _time(1, 22), "pod-window"),
    ],
)
def test_a_window_of_a_workload(window: str, when: datetime, verdict: str) -> None:
    """A node with a pod that has a window goes only while it is open; an unreadable window is closed."""
    town = Town(kind("m", "0.20"), now=when)
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("n", "m", drifted=MINUTE)
    town.pod("p", "n", annotations={"dovetail.dev/disruption-window": window})
    town.node("room", "m")
    town.pod("q", "room", cpu="3000m", annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert town.verdicts()["n"] == verdict


def test_all_windows_of_a_node_must_be_open() -> None:
    """Two pods with windows that don't overlap keep their node."""
    town = Town(kind("m", "0.20"), now=_time(1, 23))
    town.pool()
    town.node("n", "m", drifted=MINUTE)
    town.pod("p", "n", annotations={"dovetail.dev/disruption-window": "0 22 * * *; 6h"})
    town.pod("q", "n", annotations={"dovetail.dev/disruption-window": "0 4 * * *; 6h"})
    assert town.verdicts()["n"] == "pod-window"


def test_a_termination_grace_period_lifts_a_workloads_window_for_drift() -> None:
    """A terminationGracePeriod lifts pod windows for drift and expiry, not for cost."""
    town = Town(kind("m", "0.20"), now=_time(1, 12))
    town.pool()
    town.node("n", "m", drifted=MINUTE)
    claim = town.claims["n"]
    spec = msgspec.structs.replace(claim.spec, termination_grace_period="1h")
    town.claims["n"] = msgspec.structs.replace(claim, spec=spec)
    town.pod("p", "n", annotations={"dovetail.dev/disruption-window": "0 22 * * *; 6h"})
    assert town.verdicts()["n"] == "eligible"


# ---------------------------------------------------------------- over time


def test_a_decider_with_memory_sees_every_edge() -> None:
    """The end of a pause, a reached age or an open window changes the answer without any event."""
    town = Town(kind("m", "0.20"), now=_time(1, 12))
    town.pool(disruption={"minNodeAge": "3h", "consolidationSavingsThreshold": 0})
    annotate(town, paused=stamp(_time(1, 13)))
    town.node("n", "m", age=HOUR)
    town.pod("p", "n", annotations={"dovetail.dev/disruption-window": "0 16 * * *; 1h"})
    town.node("room", "m", age=9 * HOUR)
    town.pod("q", "room", cpu="3000m", annotations={"karpenter.sh/do-not-disrupt": "true"})
    remembering, question = Decider(), town.question()
    seen = []
    for minute in range(0, 360, 5):
        asked = dataclasses.replace(question, now=_time(1, 12) + minute * MINUTE)
        answer = remembering.round(asked)
        oracle = Decider(memory=False).round(asked)
        assert [v.verdict for v in answer.verdicts] == [v.verdict for v in oracle.verdicts]
        assert answer.next_change == oracle.next_change
        verdict = next(v.verdict for v in answer.verdicts if v.node == "n")
        if not seen or seen[-1] != verdict:
            seen.append(verdict)
    assert seen == ["paused", "pod-window", "eligible", "pod-window"]


def test_reasons_of_rows_are_those_of_the_contract() -> None:
    """A closed window shows as 0 allowed in the budget table."""
    town = empties(2, now=_time(1, 12), windows=[{**NIGHT, "reasons": ["Empty"]}])
    rows = {row.reason: row.left for row in town.round().budgets}
    assert rows[Reason.EMPTY] == 0
    assert rows[Reason.DRIFTED] > 0


def test_a_window_that_cannot_be_read_is_told() -> None:
    """An unreadable window never opens, and the node's facts name the pod and the problem."""
    town = Town(kind("m", "0.10", cpu=4))
    town.pool()
    town.node("n", "m")
    town.pod("p", "n", annotations={"dovetail.dev/disruption-window": "now and then"})
    [told] = Scene.of(town.question()).by_name["n"].unreadable
    assert told.startswith("pod default/p: dovetail.dev/disruption-window: ")
    assert told.endswith("it never opens")


def test_of_equally_tight_budgets_the_first_is_named() -> None:
    """The reason names the first of equally tight budgets."""
    town = Town(kind("m", "0.10", cpu=4))
    town.pool(disruption={"budgets": [{"nodes": "0"}, {"nodes": "0%"}]})
    town.node("n", "m")
    context = Scene.of(town.question())
    policy = context.policies["default"]
    found = flat_allowance(policy, 1, 0, Reason.UNDERUTILIZED, town.settings, town.now)
    assert found.budget is policy.budgets[0]
