"""The promises around the irreversible step, broken on purpose, and kept; and the world that can break them."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from dovetail.lifecycle.messages import (
    CreateNodeClaim,
    DeleteNodeClaim,
    EvictPod,
    LookAtPods,
    TaintNode,
)
from dovetail.model import names
from dovetail.model.command import Method, Replacement
from dovetail.model.objects import (
    LabelSelectorSpec,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    is_true,
)
from dovetail.sim.checks.faults import SlowLine
from dovetail.sim.checks.meanwhile import Meanwhile
from dovetail.sim.checks.watch import Watch
from dovetail.sim.world.actuate import ClusterInstruction
from dovetail.sim.world.calls import Calls
from dovetail.sim.world.clock import MINUTE, SECOND, Clock
from dovetail.sim.world.host import Host
from dovetail.sim.world.world import START, World
from tests.support.rogue import Rogue, rules, settle, small_world, work


def on(node: str) -> dict[str, str]:
    """Return the selector of a node."""
    return {names.HOSTNAME: node}


def pod_on(world: World, node: str) -> Pod:
    """Return the pod on a node."""
    [pod] = world.store.pods_on[node].values()
    return pod


def close_pdb(world: World, app: str = "web") -> None:
    """Let no pod of an app be disrupted."""
    spec = PodDisruptionBudgetSpec(selector=LabelSelectorSpec(match_labels={"app": app}), max_unavailable=0)
    world.put(PodDisruptionBudget(metadata=ObjectMeta(name=app, namespace="default"), spec=spec))


def protect(world: World, pod: Pod) -> None:
    """Put do-not-disrupt on a pod."""
    world.store.touch_meta(pod, annotations={**pod.metadata.annotations, names.DO_NOT_DISRUPT: "true"})


def begun(
    *replacements: str, method: Method = Method.DRIFTED, nodes: tuple[str, ...] = ("n0",)
) -> tuple[World, Watch, Rogue]:
    """Return a world in which a command has tainted nodes and launched its replacements; a pod runs on n0."""
    world = small_world(3, budgets=[{"nodes": "100%"}])
    world.workloads.add(work(replicas=1, node_selector=on("n0")))
    settle(world, 600)
    watch = Watch(world)
    rogue = Rogue(world, watch)
    record = rogue.record("one", nodes, method, replacements)
    for node in nodes:
        rogue.do(TaintNode(id=f"one/taint/{node}", command_id="one", node=node, record=record))
    for name in replacements:
        wanted = Replacement(node_pool="blue", instance_types=("small",))
        made = CreateNodeClaim(id=f"one/create/{name}", command_id="one", name=name, replacement=wanted, record=record)
        rogue.do(made)
    settle(world, 60)
    watch.violations.clear()
    return world, watch, rogue


# ---------------------------------------------------------------- the checkers


@pytest.mark.parametrize(
    ("change", "method", "broken"),
    [
        (lambda world: None, Method.DRIFTED, False),
        (close_pdb, Method.DRIFTED, True),
        (close_pdb, Method.SINGLE_NODE, True),
        (close_pdb, Method.EMPTY, False),
        (lambda world: protect(world, pod_on(world, "n0")), Method.DRIFTED, True),
        (lambda world: protect(world, pod_on(world, "n0")), Method.EMPTY, True),
        (lambda world: close_pdb(world, "other"), Method.DRIFTED, False),
    ],
)
def test_deletion_that_gate_6_refuses_is_seen(change: Callable[[World], None], method: Method, broken: bool) -> None:
    """A claim may not go while a PDB allows nothing or a pod on its node is protected; an empty one has no PDBs."""
    world, watch, rogue = begun(method=method)
    change(world)
    rogue.delete("one", "n0")
    settle(world, 1)
    assert ("last-look" in rules(watch)) is broken


def test_what_a_look_saw_counts_for_a_while_and_for_all_nodes() -> None:
    """A PDB that closes after the look is forgiven; one that had closed before it is not, whichever node goes first."""
    for before, broken in ((True, True), (False, False)):
        world, watch, rogue = begun(nodes=("n0", "n1"))
        if before:
            close_pdb(world)
        rogue.do(LookAtPods(id="one/look/1", command_id="one", nodes=("n0", "n1")))
        if not before:
            close_pdb(world)
        rogue.delete("one", "n1")
        settle(world, 1)
        assert ("last-look" in rules(watch)) is broken


def test_after_the_first_deletion_only_protection_counts() -> None:
    """The PDB that the command itself has used up does not hold its second node; a protected pod there does."""
    for guard, broken in ((close_pdb, False), (lambda world: protect(world, pod_on(world, "n0")), True)):
        world, watch, rogue = begun(nodes=("n0", "n1"))
        rogue.delete("one", "n1")
        settle(world, 1)
        guard(world)
        rogue.delete("one", "n0")
        settle(world, 1)
        assert ("last-look" in rules(watch)) is broken


def test_an_eviction_is_an_irreversible_step_too() -> None:
    """The first eviction of a command needs the same look."""
    world, watch, rogue = begun(method=Method.SINGLE_NODE)
    pod = pod_on(world, "n0")
    protect(world, pod)
    meta = pod.metadata
    rogue.do(EvictPod(id="one/evict", command_id="one", namespace=meta.namespace, name=meta.name, uid=meta.uid))
    assert rules(watch) == ["last-look"]


def undo(rogue: Rogue, name: str) -> None:
    """Delete a replacement without a look."""
    uid = rogue.world.store.claims[name].metadata.uid
    rogue.do(DeleteNodeClaim(id=f"one/delete/{name}", command_id="one", name=name, uid=uid))


def test_undo_of_a_replacement_with_pods_is_seen() -> None:
    """A ready replacement with a pod may not be undone; an empty one, or one that never got ready, may."""
    world, watch, rogue = begun("new-0")
    world.workloads.add(work("visitor", replicas=1, node_selector=on("new-0")))
    settle(world, 60)
    undo(rogue, "new-0")
    settle(world, 1)
    assert rules(watch) == ["replacement-undone"]
    world, watch, rogue = begun("new-0")
    undo(rogue, "new-0")
    settle(world, 1)
    assert rules(watch) == []


def test_undo_after_a_deletion_is_seen() -> None:
    """Once a candidate's claim is deleted the replacement is needed."""
    world, watch, rogue = begun("new-0")
    rogue.delete("one", "n0")
    settle(world, 1)
    undo(rogue, "new-0")
    settle(world, 1)
    assert rules(watch) == ["replacement-undone"]


# ---------------------------------------------------------------- the world


def test_a_stopped_karpenter_does_nothing_until_it_runs_again() -> None:
    """While Karpenter is stopped nothing is launched, drained or provisioned; then it does what it missed."""
    world = small_world(2)
    world.workloads.add(work(replicas=1, node_selector=on("n0")))
    settle(world, 60)
    world.karpenter.outage.begin()
    watch = Watch(world)
    rogue = Rogue(world, watch)
    rogue.replace("one", "n1", "new-0")
    rogue.delete("two", "n0")
    world.workloads.add(work("big", replicas=4, cpu="3000m"))
    settle(world, 300)
    assert not world.store.claims["new-0"].status.conditions
    assert set(world.store.claims) == {"n0", "n1", "new-0"}
    assert all(pod.metadata.deletion_timestamp is None for pod in world.store.pods_on["n0"].values())
    world.karpenter.outage.end()
    settle(world, 120)
    assert is_true(world.store.claims["new-0"].status.conditions, names.CONDITION_INITIALIZED)
    assert "n0" not in world.store.claims
    assert len(world.store.claims) > 2


def test_calls_of_a_command_run_in_order_and_alike_ones_side_by_side() -> None:
    """Each call takes its own time; those of the next kind wait for the answers of all before."""
    clock = Clock(START)
    times = {"a": 5, "b": 1, "c": 1, "d": 1}
    log: list[tuple[str, int]] = []

    def execute(asked: ClusterInstruction, life: int) -> int:
        log.append((asked.id, clock.now))
        return 2

    calls = Calls(clock, lambda asked: times[asked.id], execute)
    for ident in ("a", "b"):
        calls.take(DeleteNodeClaim(id=ident, command_id="one", name=ident, uid="u"), 1)
    calls.take(LookAtPods(id="c", command_id="one", nodes=()), 1)
    calls.take(LookAtPods(id="d", command_id="two", nodes=()), 1)
    clock.run(100)
    assert log == [("b", 1), ("d", 1), ("a", 5), ("c", 8)]
    calls.take(LookAtPods(id="c", command_id="one", nodes=()), 1)
    calls.take(DeleteNodeClaim(id="b", command_id="one", name="b", uid="u"), 1)
    clock.run(101)
    calls.drop_all()
    clock.run(200)
    assert log[4:] == [("c", 101)], "what was on its way arrives; what was not is dropped"


@pytest.mark.parametrize("seed", range(4))
def test_a_roll_back_waits_for_the_answers_of_all_deletions(seed: int) -> None:
    """Five empty candidates of one command; somebody protects a pod on the last one while the deletions are out."""
    world = small_world(6, seed=seed, budgets=[{"nodes": "100%"}], consolidateAfter="30s")
    for index in range(5):
        world.workloads.add(work(f"app-{index}", replicas=1, cpu="200m", node_selector=on(f"n{index}")))
    settle(world, 600)
    for pod in list(world.store.pods.values()):
        world.put(replace(pod, spec=replace(pod.spec, node_selector={})))
    host = world.add_engine(line=SlowLine(2 * SECOND, world.dice.stream("reach")))
    watch = Watch(world, lag=15 * SECOND)
    watch.follow(host)
    done: list[str] = []

    def meddle(_: Host, asked: object) -> None:
        if isinstance(asked, DeleteNodeClaim) and asked.node and not done:
            done.append(asked.node)
            for node, pods in sorted(world.store.pods_on.items()):
                if node != asked.node and pods:
                    protect(world, next(iter(pods.values())))

    host.on_instruction.append(meddle)
    host.start()
    settle(world, 900)
    assert done, "a command began to delete"
    assert [entry for entry in rules(watch) if entry in ("replacement-undone", "last-look", "lost-pod")] == []


def test_meanwhile_heals() -> None:
    """Whatever changed in the middle of commands is as before once it is over."""
    world = small_world(3, budgets=[{"nodes": "100%"}])
    world.workloads.add(work(replicas=3))
    settle(world, 60)
    close_pdb(world, "other")
    meanwhile = Meanwhile(world, world.dice.stream("meanwhile"), 1.0)
    before = {key: pdb.spec for key, pdb in world.store.pdbs.items()}
    rogue = Rogue(world, Watch(world))
    meanwhile.follow(rogue.host)
    for index in range(12):
        node = f"n{index % 3}"
        record = rogue.record(f"c{index}", (node,), Method.DRIFTED)
        asked = TaintNode(id=f"c{index}/taint", command_id=f"c{index}", node=node, record=record)
        for hear in rogue.host.on_instruction:
            hear(rogue.host, asked)
    world.run(world.now + 2 * MINUTE)
    meanwhile.heal()
    settle(world, 5)
    assert not world.karpenter.outage.is_on
    assert {key: pdb.spec for key, pdb in world.store.pdbs.items()} == before
    assert not [pod for pod in world.store.pods.values() if names.DO_NOT_DISRUPT in pod.metadata.annotations]
    assert not [node for node in world.store.nodes.values() if names.ALWAYS_DO_NOT_DISRUPT in node.metadata.annotations]
