"""What each design document asks for, once each, on a real cluster; evidence: the API server's own timestamps."""

import itertools
from datetime import UTC, datetime, timedelta

from tests.support.control_plane import eventually
from tests.support.controller import Process
from tests.support.e2e_world import ZONES, World, pool
from tests.support.history import History


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _left_at(history: History, claim: str) -> datetime:
    """Return when a claim's deletion began, by the API server's clock."""
    entry = history.first("NodeClaim", lambda e: e.name == claim and e.is_leaving)
    assert entry is not None
    return _time(entry.object["metadata"]["deletionTimestamp"])


def test_grace_period(world: World, running: Process, history: History) -> None:
    """Until the grace period has passed since the last pod event a node is left alone, then it is consolidated.

    Design: grace-period.
    """
    web = world.pool(pool("web", consolidateAfter="Never", consolidationGracePeriod="12s"))
    world.node("left", web)
    world.node("right", web)
    world.fill("app", ["left", "right", "right"])
    world.patch(web, {"spec": {"disruption": {"consolidateAfter": "0s"}}})
    eventually(lambda: len(world.nodes()) == 1)
    gone = next(name for name in ("left", "right") if name not in world.nodes())
    entry = history.first("NodeClaim", lambda e: e.name == gone and e.is_leaving)
    assert entry is not None
    quiet_since = _time(entry.object["status"]["lastPodEventTime"])
    assert _left_at(history, gone) - quiet_since >= timedelta(seconds=12)


def test_savings_threshold(world: World, running: Process, history: History) -> None:
    """A move that saves too little for what it disturbs is blocked, counted, told; a lower threshold lets it go.

    Design: savings-threshold.
    """
    metric = "karpenter_consolidation_threshold_blocked_total"
    web = world.pool(pool("thrifty", consolidateAfter="Never", consolidationSavingsThreshold=1.0))
    world.node("left", web)
    world.node("right", web)
    world.fill("app", ["left", "right", "right"])
    world.patch(web, {"spec": {"disruption": {"consolidateAfter": "0s"}}})
    eventually(lambda: running.metric(metric, nodepool="thrifty") > 0)

    def told() -> list[str]:
        notes = [event["note"] for name in ("left", "right") for event in world.events(name)]
        return [note for note in notes if "savings-threshold" in note and "$" in note]

    eventually(told)  # verdicts are computed once a minute
    assert running.said("", topic="threshold-blocked", pool="thrifty")
    assert len(world.nodes()) == 2
    world.patch(web, {"spec": {"disruption": {"consolidationSavingsThreshold": 0}}})
    eventually(lambda: len(world.nodes()) == 1)
    assert history.first("NodeClaim", lambda e: e.is_leaving) is not None


def test_three_zones_one_after_another(world: World, running: Process, history: History) -> None:
    """Drift rolls through one zone at a time: the next begins when the last node of the one before is gone.

    Design: topology-budgets.
    """
    zonal = {"nodes": "100%", "topologyKey": "topology.kubernetes.io/zone", "sequential": True, "reasons": ["Drifted"]}
    web = world.pool(pool("web", consolidateAfter="Never", budgets=[{"nodes": "100%"}, zonal]))
    olds: dict[str, list[str]] = {}
    for zone in ZONES:
        for number in (1, 2):
            name = f"{zone}-{number}"
            world.node(name, web, zone=zone)
            olds.setdefault(zone, []).append(name)
    world.fill("app", [name for names in olds.values() for name in names], cpu="1500m")
    world.patch(web, {"spec": {"template": {"metadata": {"labels": {"generation": "two"}}}}})
    every = {name for names in olds.values() for name in names}
    eventually(lambda: not every & set(world.claims()))
    world.wait_running("app", 6)
    eventually(lambda: not world.leftovers())
    spans = []
    for zone, names in olds.items():
        begins = [history.first("Node", lambda e, n=name: e.name == n and e.is_tainted) for name in names]
        ends = [history.first("NodeClaim", lambda e, n=name: e.name == n and e.type == "DELETED") for name in names]
        assert None not in begins
        assert None not in ends
        spans.append(
            (min(e.version for e in begins if e), max(e.version for e in ends if e), zone,
             min(_left_at(history, n) for n in names), max(_left_at(history, n) for n in names))
        )  # fmt: skip
    spans.sort()
    for before, after in itertools.pairwise(spans):
        assert before[1] < after[0], f"{after[2]} began before {before[2]} was done"
        assert before[4] <= after[3]


def test_a_budget_with_a_window(world: World, running: Process, history: History) -> None:
    """While a window allows nothing nothing goes; the moment it closes, it does, by the API server's own clock.

    Design: disruption-controls.
    """
    end = (datetime.now(UTC) + timedelta(seconds=120)).replace(second=0, microsecond=0)  # a minute off at least
    start = end - timedelta(minutes=3)
    window = {"nodes": "0", "schedule": f"{start.minute} {start.hour} * * *", "duration": "3m", "reasons": ["Empty"]}
    web = world.pool(pool("office", budgets=[{"nodes": "100%"}, window]))
    world.node("idle", web)
    eventually(lambda: running.metric("dovetail_budget_limit_nodes", nodepool="office", reason="Drifted") >= 1)
    assert running.metric("dovetail_budget_left_nodes", nodepool="office", reason="Empty") == 0
    assert "idle" in world.nodes()
    eventually(lambda: "idle" not in world.nodes())
    assert end <= _left_at(history, "idle")
