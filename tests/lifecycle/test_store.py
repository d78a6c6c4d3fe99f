import itertools

import msgspec
import pytest

from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.cluster import cluster_of
from dovetail.model.objects import (
    Node,
    NodeClaim,
    NodeClaimStatus,
    NodePool,
    NodeSpec,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    Taint,
)


def pod(name: str, node: str = "", version: str = "", uid: str = "", phase: str = "") -> Pod:
    """Build a pod."""
    meta = ObjectMeta(name=name, namespace="shop", resource_version=version, uid=uid)
    return Pod(metadata=meta, spec=PodSpec(node_name=node), status=PodStatus(phase=phase))


def test_cluster_is_sorted_and_equal_to_one_made_at_once() -> None:
    """Objects fed in any order give the Cluster that `cluster_of` gives."""
    items = [pod("c"), pod("a"), Node(metadata=ObjectMeta(name="n2")), Node(metadata=ObjectMeta(name="n1")), pod("b")]
    store = Store()
    for item in items:
        store.observe(item)
    assert store.cluster() == cluster_of(items)


def test_nothing_changed_is_the_same_cluster() -> None:
    """An object that comes again unchanged, or with only a new resource version, changes nothing."""
    store = Store()
    store.observe(pod("a", version="1"))
    before, version = store.cluster(), store.version
    assert not store.observe(pod("a", version="1"))
    assert not store.observe(pod("a", version="2"))
    assert store.version == version
    assert store.cluster() is before


def test_only_the_kind_that_changed_is_rebuilt() -> None:
    """Tuples of other kinds and unchanged objects are reused."""
    store = Store()
    store.observe(pod("a"))
    store.observe(Node(metadata=ObjectMeta(name="n")))
    before, versions = store.cluster(), store.versions()
    store.observe(pod("b"))
    after = store.cluster()
    assert after.nodes is before.nodes
    assert after.pods[0] is before.pods[0]
    assert store.versions() == {**versions, "pods": versions["pods"] + 1}


def test_older_report_of_the_same_object_is_ignored() -> None:
    """An older version of an object that arrives late is ignored."""
    store = Store()
    store.observe(pod("a", "n2", version="12", uid="u"))
    assert not store.observe(pod("a", "n1", version="9", uid="u"))
    assert store.cluster().pods[0].spec.node_name == "n2"


def test_vanished_object_does_not_come_back_by_a_late_report() -> None:
    """A uid that is known to be gone stays gone; a namesake with another uid is a new object."""
    store = Store()
    store.observe(pod("a", uid="old"))
    store.vanish("Pod", "shop", "a", "old")
    assert not store.observe(pod("a", uid="old"))
    assert store.cluster().pods == ()
    assert store.observe(pod("a", uid="new"))


def test_late_end_of_an_older_namesake_changes_nothing() -> None:
    """The late deletion of a replaced object does not remove the new object with its name."""
    store = Store()
    store.observe(pod("a", uid="old"))
    store.observe(pod("a", uid="new"))
    assert store.vanish("Pod", "shop", "a", "old") is None
    assert store.cluster().pods[0].metadata.uid == "new"
    assert store.vanish("Pod", "shop", "nobody") is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pending_pods(phase: str) -> None:
    """Pods without a node are pending unless they ended."""
    store = Store()
    store.observe(pod("waits"))
    store.observe(pod("ended", phase=phase))
    store.observe(pod("runs", "n"))
    assert [item.metadata.name for item in store.pending_pods()] == ["waits"]
    store.observe(pod("waits", "n"))
    assert not tuple(store.pending_pods())
    assert [item.metadata.name for item in store.pods_on("n")] == ["runs", "waits"]


def test_indexes_follow_the_objects() -> None:
    """Claims of nodes, nodes of pools and marks are kept as objects come, change and go."""
    store = Store()
    claim = NodeClaim(metadata=ObjectMeta(name="c"), status=NodeClaimStatus(node_name="n", provider_id="id"))
    node = Node(metadata=ObjectMeta(name="n", labels={names.NODEPOOL: "web"}), spec=NodeSpec(provider_id="id"))
    store.observe(NodePool(metadata=ObjectMeta(name="web")))
    store.observe(claim)
    store.observe(node)
    assert store.claim_of("n") is claim
    assert store.nodes_of("web") == ["n"]
    taint = Taint(key=names.DISRUPTION_TAINT, value=names.DISRUPTION_TAINT_VALUE, effect="NoSchedule")
    store.observe(msgspec.structs.replace(node, spec=NodeSpec(taints=(taint,))))
    assert list(store.marks.nodes) == ["n"]
    store.observe(node)
    assert list(store.marks.nodes) == []
    store.vanish("Node", "", "n")
    store.vanish("NodeClaim", "", "c")
    assert store.claim_of("n") is None
    assert store.nodes_of("web") == []


def _machine(name: str, provider_id: str) -> Node:
    return Node(metadata=ObjectMeta(name=name), spec=NodeSpec(provider_id=provider_id))


def _claim(name: str, node: str, provider_id: str) -> NodeClaim:
    return NodeClaim(metadata=ObjectMeta(name=name), status=NodeClaimStatus(node_name=node, provider_id=provider_id))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_node_whose_name_is_used_again_has_the_claim_of_its_machine(order: tuple[int, ...]) -> None:
    """A claim that lingers under a node's name is not that node's claim: the provider ids differ."""
    items = (_machine("n", "id-new"), _claim("old", "n", "id-old"), _claim("new", "n", "id-new"))
    store = Store()
    for at in order:
        store.observe(items[at])
    assert store.claim_of("n") is items[2]
    assert store.nodes_of_claims(["old", "new"]) == ["n"]
    store.vanish("NodeClaim", "", "new")
    assert store.claim_of("n") is None
    assert store.nodes_of_claims(["old"]) == []


def test_a_machine_that_two_claims_name_has_none() -> None:
    """Two claims, or two nodes, with one provider id: nothing says which of them is meant."""
    store = Store()
    for item in (_machine("n", "id"), _claim("a", "n", "id"), _claim("b", "n", "id")):
        store.observe(item)
    assert store.claim_of("n") is None
    store.vanish("NodeClaim", "", "b")
    assert store.claim_of("n") is not None
    store.observe(_machine("m", "id"))
    assert (store.claim_of("n"), store.claim_of("m")) == (None, None)


def test_without_a_provider_id_there_is_no_claim() -> None:
    """A Node or claim that has no provider id yet belongs to nobody, whatever names say."""
    store = Store()
    for item in (_machine("n", ""), _claim("a", "n", "")):
        store.observe(item)
    assert store.claim_of("n") is None
    store.observe(_machine("n", "id"))
    assert store.claim_of("n") is None
    store.observe(_claim("a", "n", "id"))
    assert store.claim_of("n") is not None
