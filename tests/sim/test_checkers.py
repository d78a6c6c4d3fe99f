"""Each checker, shown to work: its rule is broken on purpose, and kept."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.lifecycle.messages import TaintNode
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import (
    KINDS,
    LabelSelectorSpec,
    ObjectMeta,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
)
from dovetail.sim.checks.checkers import STUCK_AFTER
from dovetail.sim.checks.promises import Checker
from dovetail.sim.checks.watch import ALL, Watch
from dovetail.sim.world.clock import MINUTE, SECOND
from dovetail.sim.world.world import World
from tests.support.rogue import Rogue, rules, settle, small_world, work


def watched(world: World) -> tuple[Watch, Rogue]:
    """Return all checkers on a world, and a controller that breaks their rules."""
    watch = Watch(world)
    return watch, Rogue(world, watch)


@pytest.mark.parametrize("kind", ALL)
def test_checker_that_follows_changes_names_their_kinds(kind: type[Checker]) -> None:
    """A checker that names no kinds hears of no change, and one that inherits them may miss its own."""
    assert ("changed" in vars(kind)) == ("follows" in vars(kind))
    assert all(name in KINDS for name in kind.follows)


def test_budget_of_a_pool_is_watched() -> None:
    """Two of four nodes may leave under 50 %; the third one is one too many."""
    world = small_world()
    watch, rogue = watched(world)
    rogue.taint("one", "n0")
    rogue.taint("two", "n1")
    assert rules(watch) == []
    rogue.taint("three", "n2")
    assert rules(watch) == ["budget"]


def test_what_left_before_the_run_is_counted_but_breaks_no_promise_of_it() -> None:
    """A run may begin in the middle of commands, as on a stretch of a recording."""
    world = small_world()
    before, rogue = watched(world)
    for number in range(3):
        rogue.taint(f"before-{number}", f"n{number}")
    assert rules(before) == ["budget"]
    watch, rogue = watched(world)
    assert rules(watch) == []
    rogue.taint("one", "n3")
    assert rules(watch) == ["budget"]
    assert "4 nodes leave at once" in watch.violations[0].what


def test_budget_counts_nodes_that_are_down_for_longer_than_the_lag() -> None:
    """A dead node uses the budget up, once the engine must have heard of it."""
    world = small_world()
    watch, rogue = watched(world)
    world.kill("n3")
    settle(world, 45)
    rogue.taint("one", "n0")
    assert rules(watch) == []
    rogue.taint("two", "n1")
    assert rules(watch) == ["budget"]


def test_budget_that_shrank_a_moment_ago_is_not_held_against_a_command() -> None:
    """What changes within the lag can't be known yet; after it, it can."""
    world = small_world()
    watch, rogue = watched(world)
    settle(world, 60)
    pool = world.store.pools["blue"]
    closed = replace(pool.spec.disruption, budgets=(replace(pool.spec.disruption.budgets[0], nodes="0"),))
    world.set_pool(replace(pool, spec=replace(pool.spec, disruption=closed)))
    settle(world, 1)
    rogue.taint("one", "n0")
    assert rules(watch) == []
    settle(world, 5)
    rogue.taint("two", "n1")
    assert rules(watch) == ["budget"]


def test_budget_frees_a_place_when_a_node_is_open_again() -> None:
    """A command that was undone uses nothing."""
    world = small_world()
    watch, rogue = watched(world)
    for name in ("n0", "n1", "n2"):
        rogue.taint(name, name)
        rogue.untaint(name, name)
    assert rules(watch) == []


def test_topology_budget_wants_one_domain_after_the_other() -> None:
    """A sequential budget is broken by drift in two zones at once (topology-budgets, Zone Selection)."""
    budgets = [{"nodes": "100%"}, {"nodes": "1", "topologyKey": names.ZONE, "sequential": True, "reasons": ["Drifted"]}]
    world = small_world(budgets=budgets)
    watch, rogue = watched(world)
    rogue.taint("one", "n0", method=Method.DRIFTED)
    rogue.taint("cost", "n2", method=Method.SINGLE_NODE)
    assert "budget" not in rules(watch)
    rogue.taint("two", "n1", method=Method.DRIFTED)
    assert rules(watch).count("budget") == 1


def test_topology_budget_caps_each_domain() -> None:
    """Two nodes of one zone at once break a budget of one per zone."""
    budgets = [{"nodes": "100%"}, {"nodes": "1", "topologyKey": names.ZONE, "reasons": ["Drifted"]}]
    world = small_world(budgets=budgets)
    watch, rogue = watched(world)
    rogue.taint("one", "n0", method=Method.DRIFTED)
    rogue.taint("two", "n1", method=Method.DRIFTED)
    assert rules(watch) == []
    rogue.taint("three", "n3", method=Method.DRIFTED)
    assert rules(watch) == ["budget"]


def test_pdb_broken_by_an_eviction_is_seen() -> None:
    """A pod evicted past its budget (here by a kubelet told to) is a broken promise."""
    world = small_world()
    world.put(
        PodDisruptionBudget(
            metadata=ObjectMeta(name="web", namespace="default"),
            spec=PodDisruptionBudgetSpec(selector=LabelSelectorSpec(match_labels={"app": "web"}), max_unavailable=1),
        )
    )
    world.workloads.add(work(replicas=3))
    settle(world)
    watch, _ = watched(world)
    first, second, _third = sorted(world.store.pods)
    assert world.evictions.evict(first).value == "evicted"
    assert rules(watch) == []
    assert world.evictions.evict(second).value == "refused"
    watch.evicted(second, world.store.pods[second])
    assert rules(watch) == ["pdb"]


@pytest.mark.parametrize(("allowed", "broken"), [(1, ["pdb"]), (2, [])])
def test_pdb_that_comes_between_two_evictions_counts_what_went_before(allowed: int, broken: list[str]) -> None:
    """A budget that is new after an eviction counts the pods that are healthy then, not those of the beginning."""
    world = small_world()
    world.workloads.add(work(replicas=4))
    settle(world)
    watch, _ = watched(world)
    first, second, third, _fourth = sorted(world.store.pods)
    watch.evicted(first, world.store.pods[first])
    world.kubelets.stop(first)
    selector = LabelSelectorSpec(match_labels={"app": "web"})
    metadata = ObjectMeta(name="web", namespace="default")
    world.put(
        PodDisruptionBudget(metadata=metadata, spec=PodDisruptionBudgetSpec(selector=selector, max_unavailable=allowed))
    )
    world.kubelets.stop(second)
    watch.evicted(third, world.store.pods[third])
    assert rules(watch) == ["pdb"]
    settle(world)
    last = min(world.store.pods)
    watch.evicted(last, world.store.pods[last])
    assert rules(watch) == ["pdb"]
    world.kubelets.stop(last)
    last = min(key for key, pod in world.store.pods.items() if pod.metadata.deletion_timestamp is None)
    watch.evicted(last, world.store.pods[last])
    assert rules(watch) == ["pdb", *broken]


def test_lost_pod_is_seen_at_the_end() -> None:
    """A workload that lacks a running pod when all is quiet has lost one."""
    world = small_world()
    world.workloads.add(work(replicas=2))
    settle(world)
    watch, _ = watched(world)
    watch.ended()
    assert rules(watch) == []
    world.workloads._set_of.clear()  # its ReplicaSet forgets the pod: nobody recreates it
    world.kubelets.stop(min(world.store.pods))
    settle(world)
    watch.ended()
    assert rules(watch) == ["lost-pod"]


def test_double_launch_for_one_node_is_seen() -> None:
    """A second command's replacement while the first one's lives is a double launch."""
    world = small_world()
    watch, rogue = watched(world)
    rogue.replace("one", "n0", "blue-one-0")
    rogue.replace("one", "n0", "blue-one-0")
    assert rules(watch) == []
    rogue.replace("two", "n0", "blue-two-0")
    assert rules(watch) == ["double-launch"]


def test_double_launch_after_the_first_was_undone_is_fine() -> None:
    """A replacement that is being deleted does not count; one that comes back under its name does."""
    world = small_world()
    watch, rogue = watched(world)
    rogue.replace("one", "n0", "blue-one-0")
    rogue.delete("one", "blue-one-0")
    rogue.replace("two", "n0", "blue-two-0")
    assert rules(watch) == []
    settle(world)
    rogue.replace("one", "n1", "blue-one-0")
    assert rules(watch) == ["double-launch"]


def test_taint_left_behind_is_seen_in_time_and_at_the_end() -> None:
    """A node that stays closed longer than any command may take is stuck."""
    world = small_world()
    watch, rogue = watched(world)
    rogue.taint("one", "n0")
    world.run(world.now + STUCK_AFTER - SECOND)
    assert rules(watch) == []
    world.run(world.now + 2 * SECOND)
    assert rules(watch) == ["stuck-taint"]
    watch.ended()
    assert rules(watch) == ["stuck-taint", "stuck-taint"]


def test_record_left_behind_is_seen_at_the_end() -> None:
    """A record without a taint is a mark left behind as well."""
    world = small_world()
    watch, rogue = watched(world)
    rogue.taint("one", "n0")
    node = world.store.nodes["n0"]
    world.put(replace(node, spec=replace(node.spec, taints=())))
    watch.ended()
    assert rules(watch) == ["stuck-taint"]


def test_node_taken_by_two_commands_is_seen() -> None:
    """A node belongs to one command at a time; the same one may ask again."""
    world = small_world()
    watch, rogue = watched(world)
    rogue.taint("one", "n0")
    rogue.taint("one", "n0")
    assert rules(watch) == []
    rogue.taint("two", "n0")
    assert "disrupted-twice" in rules(watch)


def test_node_deleted_by_two_commands_is_seen() -> None:
    """A NodeClaim is deleted by one command; the same one may ask again."""
    world = small_world()
    watch, rogue = watched(world)
    rogue.delete("one", "n0")
    rogue.delete("one", "n0")
    assert rules(watch) == []
    rogue.delete("two", "n0")
    assert rules(watch) == ["disrupted-twice"]


def test_replacement_taken_before_its_pods_came_is_seen() -> None:
    """An empty replacement is not to be deleted while its command lasts."""
    world = small_world()
    watch, rogue = watched(world)
    rogue.replace("one", "n0", "blue-one-0")
    settle(world, 45)
    rogue.taint("two", "blue-one-0", method=Method.EMPTY)
    assert rules(watch) == ["replacement-deleted"]


def test_replacement_that_got_pods_may_be_taken() -> None:
    """Once a pod has come the replacement is a node like any other."""
    world = small_world(nodes=1)
    watch, rogue = watched(world)
    rogue.replace("one", "n0", "blue-one-0")
    settle(world, 20)
    rogue.taint("one", "n0")
    world.workloads.add(work(replicas=1))
    settle(world, 20)
    assert world.store.pods_on["blue-one-0"]
    rogue.taint("two", "blue-one-0")
    assert "replacement-deleted" not in rules(watch)


@pytest.mark.parametrize(("waited", "broken"), [(9, ["grace-period", "destination-grace"]), (11, [])])
def test_cost_action_within_the_grace_period_is_seen(waited: int, broken: list[str]) -> None:
    """Ten minutes from the last pod event no cost action may take the node (grace-period, Key Design Principle)."""
    world = small_world(nodes=3, consolidationGracePeriod="10m")
    world.workloads.add(work(replicas=3))
    settle(world, 5)
    watch, rogue = watched(world)
    world.run(world.now + waited * MINUTE)
    rogue.taint("one", "n0")
    assert rules(watch) == broken


def test_grace_period_does_not_hold_drift_back() -> None:
    """Neither expiry nor drift looks at the grace period."""
    world = small_world(nodes=3, consolidationGracePeriod="10m")
    world.workloads.add(work(replicas=3))
    settle(world, 5)
    watch, rogue = watched(world)
    rogue.taint("one", "n0", method=Method.DRIFTED)
    assert rules(watch) == []


def test_cycle_is_seen() -> None:
    """A node replaced by its own likeness, twice, with nothing from outside, leads nowhere."""
    world = small_world(nodes=1, budgets=[{"nodes": "100%"}])
    settle(world)
    watch, rogue = watched(world)
    last = "n0"
    for turn in range(3):
        fresh = f"blue-{turn}-0"
        rogue.replace(f"{turn}", last, fresh)
        settle(world, 10)
        rogue.taint(f"{turn}", last)
        rogue.delete(f"{turn}", last)
        settle(world, 120)
        last = fresh
    assert "cycle" in rules(watch)


def test_state_that_comes_back_by_outside_help_is_no_cycle() -> None:
    """When something from outside happens in between, coming back is no fault."""
    world = small_world(nodes=1, budgets=[{"nodes": "100%"}])
    settle(world)
    watch, rogue = watched(world)
    last = "n0"
    for turn in range(3):
        world.outside("somebody scales something")
        fresh = f"blue-{turn}-0"
        rogue.replace(f"{turn}", last, fresh)
        settle(world, 10)
        rogue.taint(f"{turn}", last)
        rogue.delete(f"{turn}", last)
        settle(world, 120)
        last = fresh
    assert "cycle" not in rules(watch)


def test_violation_says_rule_time_and_what() -> None:
    """The contract's JSON shows each broken promise with its rule, its second and a sentence."""
    world = small_world()
    watch, rogue = watched(world)
    settle(world, 30)
    for name in ("n0", "n1", "n2"):
        rogue.taint(name, name)
    shown = watch.violations[0].figures()
    assert shown["rule"] == "budget"
    assert shown["at"] == 30.0
    assert "3 nodes leave at once" in shown["what"]
    assert timedelta(seconds=shown["at"])


def with_a_deaf_karpenter() -> tuple[World, Watch, Rogue]:
    """Return a world with four pods in which Karpenter misses every pod event from now on."""
    world = small_world(consolidateAfter="5m")
    world.workloads.add(work(replicas=4))
    settle(world, 600)
    watch, rogue = watched(world)
    rogue.host.up_since = world.now
    world.karpenter.is_deaf = True
    return world, watch, rogue


def test_consolidate_after_is_held_though_karpenter_missed_the_event() -> None:
    """A pod went a moment ago and no NodeClaim says so: the node may not be taken yet; drift may take it."""
    world, watch, rogue = with_a_deaf_karpenter()
    world.scale("ReplicaSet", "default/web", 3)
    settle(world, 30)
    quiet = [name for name in sorted(world.store.nodes) if watch.pod_events.passed(name, rogue.host) > 60 * SECOND]
    (touched,) = set(world.store.nodes) - set(quiet)
    rogue.taint("one", quiet[0], method=Method.EMPTY)
    rogue.taint("drift", touched, method=Method.DRIFTED)
    rogue.untaint("drift", touched)
    assert "consolidate-after" not in rules(watch)
    rogue.taint("two", touched, method=Method.SINGLE_NODE)
    assert rules(watch).count("consolidate-after") == 1


@pytest.mark.parametrize(
    ("sets", "broken"),
    [
        ([], True),
        ([(60, -240)], True),  # set back: the wait becomes longer
        ([(60, -240), (120, 0)], False),  # and set right again: forward, though it is right now
        ([(60, 240), (120, 0)], False),
        ([(-60, -240), (-30, 0)], True),  # before the event
        ([(-60, -240), (60, 0)], False),
        ([(60, 5)], True),  # forward by less than is missing
        ([(60, -5), (120, 0)], True),
        ([(60, 65)], False),
    ],
)
def test_wait_gains_only_what_a_clock_set_forward_since_the_event_gives(
    sets: list[tuple[int, int]], broken: bool
) -> None:
    """A node is taken 4 min after an event that Karpenter missed, of 5; (s, skew): when the wall clock was set."""
    world, watch, rogue = with_a_deaf_karpenter()
    event = world.now + 120 * SECOND

    def set_clock(skew: int) -> None:
        rogue.host.skew = timedelta(seconds=skew)

    for at, skew in sets:
        world.clock.at(event + at * SECOND, set_clock, skew)
    world.run(event)
    world.scale("ReplicaSet", "default/web", 0)
    world.run(event + 240 * SECOND)
    rogue.taint("one", "n0", method=Method.EMPTY)
    assert ("consolidate-after" in rules(watch)) is broken


def test_engine_that_was_down_can_not_know_what_karpenter_missed() -> None:
    """What happened before it started, and what nobody wrote down, does not count as a violation."""
    world = small_world(consolidateAfter="5m")
    world.workloads.add(work(replicas=4))
    settle(world, 600)
    watch, rogue = watched(world)
    world.karpenter.is_deaf = True
    world.scale("ReplicaSet", "default/web", 0)
    settle(world, 30)
    rogue.host.up_since = world.now
    rogue.taint("one", "n0", method=Method.EMPTY)
    assert rules(watch) == []


def test_destination_within_its_grace_period_is_seen() -> None:
    """A cost action whose pods fit only where a pod has just come breaks it; with a replacement it does not."""
    for replacements, broken in (((), ["destination-grace"]), (("new",), [])):
        world = small_world(
            2, consolidationGracePeriod="10m", consolidationSavingsThreshold=0, budgets=[{"nodes": "100%"}]
        )
        world.workloads.add(work("first", replicas=1, node_selector={names.HOSTNAME: "n0"}))
        settle(world, 900)
        world.workloads.add(work("second", replicas=1, node_selector={names.HOSTNAME: "n1"}))
        settle(world, 60)
        free = world.store.pods_on["n0"]
        for pod in tuple(free.values()):
            world.put(replace(pod, spec=replace(pod.spec, node_selector={})))
        watch, rogue = watched(world)
        record = rogue.record("one", ("n0",), Method.SINGLE_NODE, replacements)
        rogue.do(TaintNode(id="one/taint/n0", command_id="one", node="n0", record=record))
        assert rules(watch) == broken


@pytest.mark.parametrize("ready", [(), ("new-0",), ("new-1",)])
def test_candidate_deleted_before_all_replacements_are_initialized_is_seen(ready: tuple[str, ...]) -> None:
    """One of two is not enough."""
    world = small_world(3)
    watch, rogue = watched(world)
    wanted = ("new-0", "new-1")
    record = rogue.record("one", ("n0",), Method.DRIFTED, wanted)
    rogue.do(TaintNode(id="one/taint/n0", command_id="one", node="n0", record=record))
    for name in ready:
        rogue.replace("one", "n0", name)
    settle(world, 60)
    watch.violations.clear()
    rogue.delete("one", "n0")
    assert rules(watch) == ["replacements-first"]


def test_candidate_deleted_after_all_replacements_is_fine() -> None:
    """Both are initialized; a rollback that deletes one of them is another matter."""
    world = small_world(3)
    watch, rogue = watched(world)
    record = rogue.record("one", ("n0",), Method.DRIFTED, ("new-0", "new-1"))
    rogue.do(TaintNode(id="one/taint/n0", command_id="one", node="n0", record=record))
    for name in ("new-0", "new-1"):
        rogue.replace("one", "n0", name)
    settle(world, 60)
    watch.violations.clear()
    rogue.delete("one", "n0")
    rogue.delete("one", "new-1")
    assert rules(watch) == []


@pytest.mark.parametrize(
    ("threshold", "replacements", "broken"),
    [(0.02, (), []), (0.06, (), ["savings-threshold"]), (0.02, ("new",), []), (0.03, ("new",), ["savings-threshold"])],
)
def test_cost_action_that_saves_too_little_is_seen(
    threshold: float, replacements: tuple[str, ...], broken: list[str]
) -> None:
    """Two pods on a node of $0.10: a deletion saves that, a replacement of $0.05 at most saves half of it."""
    world = small_world(2, consolidationSavingsThreshold=threshold, budgets=[{"nodes": "100%"}])
    world.workloads.add(work(replicas=2, node_selector={names.HOSTNAME: "n0"}))
    settle(world, 300)
    for key, pod in tuple(world.store.pods_on["n0"].items()):
        assert key
        world.put(replace(pod, spec=replace(pod.spec, node_selector={})))
    watch, rogue = watched(world)
    record = rogue.record("one", ("n0",), Method.SINGLE_NODE, replacements)
    rogue.do(TaintNode(id="one/taint/n0", command_id="one", node="n0", record=record))
    for name in replacements:
        rogue.replace("one", "n0", name)
    assert rules(watch) == broken


@pytest.mark.parametrize(("seconds", "broken"), [(1, []), (10, ["savings-threshold"])])
def test_a_node_that_has_just_gone_still_counts(seconds: int, broken: list[str]) -> None:
    """A controller can't know yet that a node is gone; after a while its replacement saves nothing."""
    world = small_world(2, consolidationSavingsThreshold=0, budgets=[{"nodes": "100%"}])
    settle(world, 300)
    watch, rogue = watched(world)
    record = rogue.record("one", ("n0",), Method.SINGLE_NODE, ("new",))
    world.store.remove("Node", "n0")
    settle(world, seconds)
    watch.violations.clear()
    rogue.do(TaintNode(id="one/taint/n0", command_id="one", node="n0", record=record))
    rogue.replace("one", "n0", "new")
    assert [rule for rule in rules(watch) if rule == "savings-threshold"] == broken
