"""What is checked once for pods with the same namespace and labels holds for each of them."""

import random
from typing import Any

import msgspec
import pytest

from dovetail.decide.facts.drainability import Guards
from dovetail.decide.facts.vetoes import Vetoes
from dovetail.model import names
from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.scheduling.pods.evictions import Blockers, is_protected
from dovetail.scheduling.pods.pod import is_active, is_reschedulable
from dovetail.scheduling.snapshot import Snapshot
from tests.support.nodes import facts_of
from tests.support.scheduling_build import NOW, class_of, node, pod, pool, snapshot

NODES = tuple(f"n{number}" for number in range(6))


def a_pod(number: int, rng: random.Random) -> Pod:
    """Build a pod of one of a few apps; some are protected, urgent, terminal or a DaemonSet's."""
    labels = {"app": f"a{rng.randrange(5)}", "tier": rng.choice("xy")}
    more: dict[str, Any] = {"labels": labels, "namespace": rng.choice(("default", "other"))}
    if rng.random() < 0.2:
        more["annotations"] = {names.DO_NOT_DISRUPT: rng.choice(("true", "false", "1h"))}
    if rng.random() < 0.2:
        more["priority"] = rng.choice((0, 1000))
    if rng.random() < 0.1:
        more["owner"] = ("apps/v1", "DaemonSet")
    return pod(f"p-{number}", on=rng.choice((*NODES, "")), **more)


def a_pdb(number: int, rng: random.Random) -> PodDisruptionBudget:
    """Build a PDB that may never allow an eviction, or none now."""
    selector = {"matchLabels": {rng.choice(("app", "app", "tier")): rng.choice(("a0", "a1", "x"))}}
    tree = {
        "metadata": {"name": f"b-{number}", "namespace": rng.choice(("default", "other"))},
        "spec": {"selector": selector, "maxUnavailable": rng.choice((0, 1))},
        "status": {"disruptionsAllowed": rng.choice((0, 1))},
    }
    return msgspec.convert(tree, PodDisruptionBudget)


def two_looks(seed: int) -> tuple[Snapshot, Snapshot]:
    """Return a snapshot that was read from scratch, and a later one that took over most of its pods."""
    rng = random.Random(seed)
    pods = [a_pod(number, rng) for number in range(60)]
    rest = [pool(), *(item for name in NODES for item in node(name)), *(a_pdb(number, rng) for number in range(4))]
    first = snapshot(*rest, *pods)
    return first, snapshot(*rest, *pods[5:], *(a_pod(number, rng) for number in range(60, 64)), previous=first)


@pytest.mark.parametrize("seed", range(25))
def test_the_same_pods_move_as_if_each_was_asked(seed: int) -> None:
    """PDBs that never allow an eviction, and do-not-disrupt, hold exactly the pods that they would hold alone."""
    for seen in two_looks(seed):
        blockers = Blockers(seen.cluster.pdbs)
        for place, pods in enumerate(seen.pods_on):
            free = [item for item in pods if is_reschedulable(item) and not is_protected(item, NOW)]
            plain = [item for item in free if not blockers.block(item)]
            assert list(seen.movers(place).pods) == plain
            assert seen.movers(place).classes == [class_of(seen, item) for item in plain]


@pytest.mark.parametrize("seed", range(25))
def test_the_same_pods_object_as_if_each_was_asked(seed: int) -> None:
    """The first active pod whose eviction is refused now is found."""
    for seen in two_looks(seed):
        guards = Guards(seen.cluster.pdbs)
        kept = Vetoes(seen, guards, NOW)
        for place, pods in enumerate(seen.pods_on):
            vetoes = (guards.veto(item, NOW) for item in pods if is_active(item))
            plain = next((veto for veto in vetoes if veto is not None), None)
            for name in (seen.states[place].name, "unseen"):
                assert kept.of(msgspec.structs.replace(facts_of(name=name), pods=pods)) == plain


def test_alike_pods_are_asked_once() -> None:
    """A condition is checked for one pod of each kind; if kinds are not known, no answer is given."""
    first, later = two_looks(1)
    asked: list[Pod] = []

    def holds(item: Pod) -> bool:
        asked.append(item)
        return item.metadata.labels["app"] == "a1"

    found = first.bindings.might(holds)
    assert found is not None
    assert len(asked) < len(first.cluster.pods)
    for place, pods in enumerate(first.pods_on):
        assert found[place] == [item.metadata.labels["app"] == "a1" for item in pods]
    assert later.bindings.might(holds) is None
