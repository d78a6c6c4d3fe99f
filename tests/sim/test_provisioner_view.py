"""What Karpenter's simulated provisioner knows, change by change, equals the cluster."""

from typing import Any

from msgspec.structs import replace

from dovetail.model.cluster import FIELD_OF
from dovetail.model.objects import LabelSelectorSpec, ObjectMeta, PodDisruptionBudget, PodDisruptionBudgetSpec
from dovetail.sim.checks.watch import Watch
from dovetail.sim.world.world import World
from tests.support.rogue import settle, small_world, work


def plain(item: Any) -> Any:
    """Return an object without its version; a budget without its status, too: placing pods does not look at it."""
    item = replace(item, metadata=replace(item.metadata, resource_version=""))
    return replace(item, status=type(item.status)()) if isinstance(item, PodDisruptionBudget) else item


def compare(world: World, watch: Watch) -> None:
    """Compare what the provisioner and the checkers see with all objects."""
    whole = world.store.cluster()
    known, checked = world.provisioner.snapshot().cluster, watch.cluster()
    for field in FIELD_OF.values():
        expected = [plain(item) for item in getattr(whole, field)]
        assert [plain(item) for item in getattr(known, field)] == expected, field
        assert [plain(item) for item in getattr(checked, field)] == expected, field
    assert checked.pdbs == whole.pdbs


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
