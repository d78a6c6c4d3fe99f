"""What Karpenter's simulated provisioner knows, change by change, equals the cluster."""

from typing import Any

from msgspec.structs import replace

from dovetail.model import names
from dovetail.model.cluster import FIELD_OF
from dovetail.model.objects import (
    LabelSelectorSpec,
    NodeClaim,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
)
from dovetail.scheduling.simulate import place
from dovetail.scheduling.snapshot import Snapshot
from dovetail.sim.checks.checkers import CycleChecker
from dovetail.sim.checks.watch import Watch
from dovetail.sim.world.world import World
from tests.support.rogue import settle, small_world, work


def plain(item: Any) -> Any:
    """Return an object without its version, and without what placing pods does not look at."""
    item = replace(item, metadata=replace(item.metadata, resource_version=""))
    if isinstance(item, PodDisruptionBudget):
        return replace(item, status=type(item.status)())
    if isinstance(item, NodeClaim):
        lasting = tuple(entry for entry in item.status.conditions if entry.type != names.CONDITION_CONSOLIDATABLE)
        return replace(item, status=replace(item.status, last_pod_event_time=None, conditions=lasting))
    if isinstance(item, Pod) and item.spec.node_name:
        ended = item.status.phase in ("Succeeded", "Failed")
        return replace(
            item, status=replace(item.status, phase="Ended" if ended else "", conditions=(), start_time=None)
        )
    return item


def placed(snapshot: Snapshot) -> Any:
    """Return where the pods of a snapshot would go, by name."""
    result = place(snapshot)
    existing = [(there.node, [pod.metadata.name for pod in there.pods]) for there in result.existing]
    new = [(node.pool, node.instance_types, node.requests, len(node.pods)) for node in result.new]
    return existing, new, [entry.pod.metadata.name for entry in result.unplaced]


def compare(world: World, watch: Watch) -> None:
    """Compare what the provisioner and the checkers see with all objects, and where pods would go by it."""
    whole = world.store.cluster()
    snapshot, checked = world.provisioner.snapshot(), watch.cluster()
    for field in FIELD_OF.values():
        expected = [plain(item) for item in getattr(whole, field)]
        assert [plain(item) for item in getattr(snapshot.cluster, field)] == expected, field
        assert [plain(item) for item in getattr(checked, field)] == expected, field
    assert checked.pdbs == whole.pdbs
    afresh = Snapshot(whole, world.cloud.seen_catalogue(), snapshot.settings, world.clock.instant())
    assert placed(snapshot) == placed(afresh)


def test_views_follow_the_cluster() -> None:
    """Pods that come, move and go, nodes that come and die, and budgets that change are all known."""
    world = small_world(nodes=3)
    watch = Watch(world)
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelectorSpec(match_labels={"app": "web"}), max_unavailable=1),
    )
    world.put(budget)
    world.workloads.add(work(replicas=12, cpu="900m"))
    for step in range(8):
        settle(world, 7)
        compare(world, watch)
        world.scale("ReplicaSet", "default/web", 12 + (-1) ** step * step)
        if step == 3:
            assert world.store.pdbs["default/web"].status.expected_pods
            changed = world.store.pdbs["default/web"]
            world.put(replace(changed, spec=replace(changed.spec, max_unavailable=0)))
            compare(world, watch)
            [seen] = world.provisioner.snapshot().cluster.pdbs
            assert seen.spec.max_unavailable == 0
        elif step == 5:
            world.kill("n1")
        elif step == 6:
            world.store.remove("PodDisruptionBudget", "default/web")
    settle(world, 300)
    compare(world, watch)
    assert "n1" not in world.store.nodes


def test_what_placing_cannot_see_leaves_the_listings_as_they_are() -> None:
    """Pods that start and claims that become consolidatable cost the next look nothing; a pod that ends does."""
    world = small_world(nodes=2)
    world.workloads.add(work(replicas=4, cpu="500m"))
    settle(world, 1)
    before = world.provisioner.snapshot().cluster
    assert {pod.status.phase for pod in before.pods} == {"Pending"}
    settle(world, 300)
    assert {pod.status.phase for pod in world.store.pods.values()} == {"Running"}
    seen = world.provisioner.snapshot().cluster
    assert seen.pods is before.pods
    assert seen.node_claims is before.node_claims
    world.kubelets.finish(next(iter(world.store.pods)))
    assert world.provisioner.snapshot().cluster.pods is not seen.pods


def test_state_of_the_cluster_is_kept_change_by_change() -> None:
    """The state that cycles are recognised by, kept while pods move and nodes die, equals that of a new checker."""
    world = small_world(nodes=3)
    kept = next(checker for checker in Watch(world).checkers if isinstance(checker, CycleChecker))
    world.workloads.add(work(replicas=9, cpu="900m"))
    states = set()
    for step in range(6):
        settle(world, 20 if step % 2 else 2)
        afresh = next(checker for checker in Watch(world).checkers if isinstance(checker, CycleChecker))
        states.add(kept._state())
        assert kept._state() == afresh._state()
        assert kept._unbound == dict.fromkeys(key for key, pod in world.store.pods.items() if not pod.spec.node_name)
        world.scale("ReplicaSet", "default/web", 9 + (-1) ** step * step)
        if step == 3:
            world.kill("n1")
    assert len(states) > 2
