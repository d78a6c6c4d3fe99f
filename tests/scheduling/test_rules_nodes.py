"""Rules on nodes that exist: order, room, taints, labels, ports, volumes, daemons, leaving and starting nodes."""

from dataclasses import replace

import msgspec

from dovetail.model.objects import CSINode, DaemonSet, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from dovetail.scheduling.simulate import place
from tests.support.scheduling_build import (
    homes,
    node,
    node_affinity,
    placed,
    pod,
    pool,
    snapshot,
    unplaced,
    wants,
    without,
)


def test_first_fit_by_name_not_best_fit() -> None:
    """The first node by name that fits takes the pod, although another is emptier."""
    assert placed(pool(), node("n2", 4), node("n9", 16), pod("a", "3")) == {"a": "n2"}


def test_nodes_that_started_come_first() -> None:
    """An initialized node comes before one that is not, whatever their names."""
    assert placed(pool(), node("n1", started=False), node("n2"), pod("a")) == {"a": "n2"}


def test_largest_pod_first() -> None:
    """Pods are taken by CPU, then memory, largest first."""
    found = placed(pool(limits={"cpu": "0"}), node("n1", 4), pod("small", "2"), pod("large", "3"))
    assert found == {"large": "n1"}


def test_oldest_of_equal_pods_first() -> None:
    """Of equal pods the oldest goes first, then by uid."""
    young, old = pod("young", "3"), pod("old", "3", created="2026-04-01T00:00:00Z")
    assert placed(pool(limits={"cpu": "0"}), node("n1", 4), young, old) == {"old": "n1"}


def test_room_is_what_running_pods_leave() -> None:
    """Running and terminating pods take room; ended pods do not."""
    ended = msgspec.structs.replace(
        pod("ended", "6", on="n1"), status=msgspec.convert({"phase": "Succeeded"}, type(pod("x").status))
    )
    going = pod("going", "3", on="n2", meta={"deletionTimestamp": "2026-05-01T12:00:00Z"})
    nodes = [*node("n1"), *node("n2")]
    assert placed(pool(limits={"cpu": "0"}), nodes, ended, pod("a", "7")) == {"a": "n1"}
    assert placed(pool(limits={"cpu": "0"}), node("n2"), going, pod("a", "6")) == {}


def test_a_node_that_is_overdrawn_takes_nothing() -> None:
    """Nothing fits on a node with a negative free resource, requested or not."""
    greedy = pod("greedy", "1", on="n1", requests={"memory": "65Gi"})
    assert placed(pool(limits={"cpu": "0"}), node("n1"), greedy, pod("a", "1", requests={"memory": "0"})) == {}


def test_extended_resources_and_the_pods_resource() -> None:
    """A resource that the node lacks is not there; the number of pods is a resource too."""
    shut = pool(limits={"cpu": "0"})
    gpu = {"requests": {"example.com/gpu": "1"}}
    assert placed(shut, node("n1"), pod("a", **gpu)) == {}
    assert placed(shut, node("n1"), node("n2", room={"example.com/gpu": "1"}), pod("a", **gpu)) == {"a": "n2"}
    assert placed(shut, node("n1", room={"pods": "1"}), pod("r", on="n1"), pod("a")) == {}


def test_taints_and_tolerations() -> None:
    """Every taint must be tolerated, PreferNoSchedule too."""
    tainted = node("n1", taints=[{"key": "dedicated", "value": "x", "effect": "PreferNoSchedule"}])
    shut = pool(limits={"cpu": "0"})
    assert placed(shut, tainted, pod("a")) == {}
    tolerant = pod("a", tolerations=[{"key": "dedicated", "operator": "Equal", "value": "x"}])
    assert placed(shut, tainted, tolerant) == {"a": "n1"}


def test_startup_taints_pass_while_a_node_starts() -> None:
    """A node that is not initialized is seen without startup taints and without not-ready."""
    taints = [{"key": "wait", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    fresh = node("n1", started=False, taints=taints, startup_taints=[{"key": "wait", "effect": "NoSchedule"}])
    assert placed(pool(limits={"cpu": "0"}), fresh, pod("a")) == {"a": "n1"}
    old = node("n1", taints=taints, startup_taints=[{"key": "wait", "effect": "NoSchedule"}])
    assert placed(pool(limits={"cpu": "0"}), old, pod("a")) == {}


def test_labels_of_nodes() -> None:
    """In, NotIn, Exists, DoesNotExist, Gt and Lt on labels; a missing label meets only the forbidding ones."""
    shut = pool(limits={"cpu": "0"})
    nodes = [*node("n1"), *node("n2", labels={"disk": "ssd", "size": "5"})]
    for expression, home in (
        (wants("disk", "In", "ssd"), "n2"),
        (wants("disk", "NotIn", "ssd"), "n1"),
        (wants("disk", "Exists"), "n2"),
        (wants("disk", "DoesNotExist"), "n1"),
        (wants("size", "Gt", "4"), "n2"),
        (wants("size", "Lt", "6"), "n2"),
    ):
        assert placed(shut, nodes, pod("a", affinity=node_affinity([expression]))) == {"a": home}, expression
    assert placed(shut, nodes, pod("a", nodeSelector={"disk": "hdd"})) == {}


def test_required_terms_are_alternatives() -> None:
    """Required terms are tried in order until one matches."""
    affinity = node_affinity([wants("disk", "In", "none")], [wants("disk", "In", "ssd")])
    assert placed(pool(), node("n1"), node("n2", labels={"disk": "ssd"}), pod("a", affinity=affinity)) == {"a": "n2"}


def test_host_ports_clash() -> None:
    """A host port is used once per node; 0.0.0.0 clashes with every address."""
    port = {"ports": [{"hostPort": 80, "protocol": "TCP"}]}
    other = {"ports": [{"hostPort": 80, "protocol": "TCP", "hostIP": "10.0.0.1"}]}
    shut = pool(limits={"cpu": "0"})
    assert placed(shut, node("n1"), node("n2"), pod("r", on="n1", **port), pod("a", **other)) == {"a": "n2"}
    assert sorted(placed(shut, node("n1"), node("n2"), pod("a", **port), pod("b", **port)).values()) == ["n1", "n2"]


def test_daemons_that_have_not_come_hold_room_back() -> None:
    """Missing DaemonSet pods reserve room; running ones are not counted twice."""
    daemon = msgspec.convert(
        {
            "metadata": {"name": "d", "namespace": "default", "uid": "o"},
            "spec": {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}}},
        },
        DaemonSet,
    )
    shut = pool(limits={"cpu": "0"})
    assert placed(shut, daemon, node("n1", 4), pod("a", "3")) == {}
    assert placed(shut, daemon, node("n1", 4), pod("a", "2")) == {"a": "n1"}
    running = pod("d-1", "2", on="n1", owner=("apps/v1", "DaemonSet"))
    assert placed(shut, daemon, node("n1", 4), running, pod("a", "2")) == {"a": "n1"}
    assert placed(shut, daemon, node("n1", 4), running, pod("a", "3")) == {}


def _claim(name: str, volume: str = "", storage_class: str = "") -> PersistentVolumeClaim:
    tree = {
        "metadata": {"name": name, "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume, "storageClassName": storage_class or None},
    }
    return msgspec.convert(tree, PersistentVolumeClaim)


def _volume(name: str, zone: str) -> PersistentVolume:
    term = {"matchExpressions": [wants("topology.kubernetes.io/zone", "In", zone)]}
    tree = {
        "metadata": {"name": name},
        "spec": {"csi": {"driver": "ebs.csi.aws.com"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
    }
    return msgspec.convert(tree, PersistentVolume)


def _with_volume(name: str, claim: str, on: str = "") -> Pod:
    return pod(name, on=on, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])


def test_a_volume_keeps_its_pod_in_its_zone() -> None:
    """A pod with a bound volume goes to a node in the volume's zone, or to a new one there."""
    objects = (pool(), _claim("c", "v"), _volume("v", "b"), _with_volume("a", "c"))
    assert placed(*objects, node("n1", zone="a"), node("n2", zone="b")) == {"a": "n2"}
    found = place(snapshot(*objects, node("n1", zone="a")))
    assert found.new[0].zones == ("b",)


def test_a_storage_class_limits_the_zones() -> None:
    """An unbound claim goes where its storage class allows; each allowed topology is an alternative."""
    storage = msgspec.convert(
        {
            "metadata": {"name": "zonal"},
            "provisioner": "ebs.csi.aws.com",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [
                {"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["z"]}]},
                {"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["b"]}]},
            ],
        },
        StorageClass,
    )
    objects = (pool(), storage, _claim("c", storage_class="zonal"), _with_volume("a", "c"))
    assert placed(*objects, node("n1", zone="a"), node("n2", zone="b")) == {"a": "n2"}


def test_attach_limits() -> None:
    """A node takes no more volumes of a driver than it can attach."""
    limits = msgspec.convert(
        {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "ebs.csi.aws.com", "allocatable": {"count": 1}}]}},
        CSINode,
    )
    claims = [_claim("c1", "v1"), _claim("c2", "v2"), _volume("v1", "a"), _volume("v2", "a")]
    objects = (pool(limits={"cpu": "0"}), *claims, limits, node("n1"), _with_volume("r", "c1", on="n1"))
    assert placed(*objects, _with_volume("a", "c2")) == {}
    assert placed(*objects, _with_volume("a", "c1")) == {"a": "n1"}


def test_leaving_nodes_take_nothing_and_their_pods_move() -> None:
    """Pods of a node that is leaving are placed in every simulation; the node itself takes none."""
    leaving = node("n1", claim_meta={"deletionTimestamp": "2026-05-01T12:00:00Z"})
    seen = snapshot(pool(), leaving, node("n2"), node("n3"), pod("l", on="n1"), pod("a", on="n3"))
    assert homes(without(seen, "n3")) == {"l": "n2", "a": "n2"}
    tainted = node("n1", taints=[{"key": "karpenter.sh/disruption", "effect": "NoSchedule"}])
    assert snapshot(pool(), tainted).marked[0]
    assert not snapshot(pool(), tainted, settings=KARPENTER_1_15).marked[0]


def test_a_landing_on_a_node_that_has_not_started_counts_as_none() -> None:
    """A candidate's pod on an uninitialized node is not placed; a leaving node's pod is."""
    seen = snapshot(pool(limits={"cpu": "0"}), node("n1"), node("n2", started=False), pod("a", on="n1"))
    result = without(seen, "n1")
    assert result.blocking
    assert "n2, which is not initialized" in result.blocking[0].why
    marked = replace(DOVETAIL, marked_for_deletion_nodes=("n1",))
    left = snapshot(pool(), node("n1"), node("n2", started=False), node("n3"), pod("a", "8", on="n1"), settings=marked)
    assert not without(left, "n3").blocking


def test_closed_nodes_refuse_moved_pods_only() -> None:
    """A closed node takes pending pods and pods of leaving nodes, but no moved pods."""
    seen = snapshot(pool(), node("n1"), node("n2"), node("n3"), pod("moved", on="n1"), pod("waits"))
    closed = [seen.index.get("n2") or 0]
    assert homes(without(seen, "n1", closed=closed)) == {"moved": "n3", "waits": "n2"}


def test_pods_that_stay_whatever_happens() -> None:
    """DaemonSet pods, mirror pods and pods that can never be evicted do not move."""
    daemon = pod("d", on="n1", owner=("apps/v1", "DaemonSet"))
    mirror = pod("m", on="n1", owner=("v1", "Node"))
    held = pod("h", on="n1", annotations={"karpenter.sh/do-not-disrupt": "true"})
    result = without(snapshot(pool(), node("n1"), node("n2"), daemon, mirror, held, pod("a", on="n1")), "n1")
    assert homes(result) == {"a": "n2"}
    assert result.pods_simulated == 1


def test_why_names_the_resource_and_the_closest_miss() -> None:
    """The reason names the needed amount, the best node's amount, and what each pool lacks."""
    seen = snapshot(pool(), node("n1", 4), node("n2", 3), pod("r", "0.8", on="n1"), pod("a", "40"))
    why = unplaced(place(seen))["a"]
    assert "needs 40 CPU, best free is 3.2 CPU on n1" in why
    assert "pool p: no type has 40 CPU" in why


def test_why_names_labels_taints_and_limits() -> None:
    """The reason names missing labels, untolerated taints and used-up limits."""
    tainted = pool("t", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    why = unplaced(place(snapshot(tainted, node("n1"), pod("a", nodeSelector={"disk": "ssd"}))))["a"]
    assert "no node it tolerates has disk In [ssd]" in why
    assert "pool t: it does not tolerate gpu:NoSchedule" in why
    full = unplaced(place(snapshot(pool(limits={"cpu": "1"}), pod("a"))))["a"]
    assert "its limits leave 1 CPU" in full
