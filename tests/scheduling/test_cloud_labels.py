"""Labels of the cloud: what EKS Auto Mode calls them and launches, and requirements that no type meets."""

from typing import Any

import pytest

from dovetail.api.catalogue import load_catalogue
from dovetail.decide.question import Question
from dovetail.decide.round import plan_round
from dovetail.model.catalogue import InstanceType
from dovetail.model.objects import NodePool, SelectorRequirement
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.scheduling.launch.purchase import Machine, cheapest, labels_of
from dovetail.scheduling.simulate import place
from dovetail.scheduling.snapshot import Snapshot
from tests.support.scheduling_build import NOW, homes, kind, node_affinity, pod, pool, snapshot, unplaced, wants

AUTO = "eks.amazonaws.com"
CATEGORY = f"{AUTO}/instance-category"
BOTH = pytest.mark.parametrize("settings", [DOVETAIL, KARPENTER_1_15], ids=["dovetail", "karpenter"])


def ec2(name: str, cpu: int, price: str, **labels: str) -> InstanceType:
    """Return an EC2 type with the labels of Karpenter's AWS provider."""
    family, _, size = name.partition(".")
    found = {"category": family[0], "family": family, "size": size, "cpu": str(cpu), **labels}
    requirements = [
        SelectorRequirement(key=f"karpenter.k8s.aws/instance-{key}", operator="In", values=(value,))
        for key, value in found.items()
    ]
    return kind(name, cpu, price, requirements=requirements)


KINDS = (
    ec2("t3.micro", 2, "0.01"),
    ec2("t3.small", 2, "0.02"),
    ec2("t3.medium", 2, "0.04"),
    ec2("m1.medium", 1, "0.05"),
    ec2("m5.large", 2, "0.10"),
    ec2("c5.large", 2, "0.09"),
    ec2("r5.large", 2, "0.13"),
)


def offered(*objects: Any, settings: Settings = DOVETAIL, kinds: tuple[InstanceType, ...] = KINDS) -> list[str]:
    """Return the types that the only new node may be, cheapest first."""
    (new,) = place(snapshot(*objects, kinds=kinds, settings=settings)).new
    return [entry.name for entry in new.instance_types]


def auto_pool(*requirements: dict[str, Any], name: str = "auto", **more: Any) -> NodePool:
    """Return a pool of EKS Auto Mode."""
    return pool(name, group=AUTO, requirements=list(requirements), **more)


def warnings(seen: Snapshot) -> list[str]:
    """Return the warnings of a round on a snapshot's cluster."""
    question = Question(cluster=seen.cluster, catalogue=seen.surroundings.given, settings=seen.settings, now=NOW)
    return list(plan_round(question).warnings)


@BOTH
def test_auto_modes_labels_are_read_as_the_providers(settings: Settings) -> None:
    """A requirement on eks.amazonaws.com/instance-category leaves the types of those categories."""
    found = offered(auto_pool(wants(CATEGORY, "In", "m", "c")), pod("a"), settings=settings)
    assert found == ["c5.large", "m5.large"]


@BOTH
def test_auto_mode_launches_no_small_type(settings: Settings) -> None:
    """Nano, micro, small and one-CPU types are never offered to a pool of EKS Auto Mode."""
    assert offered(auto_pool(), pod("a", "100m"), settings=settings) == [
        "t3.medium",
        "c5.large",
        "m5.large",
        "r5.large",
    ]


def test_the_labels_alone_show_auto_mode() -> None:
    """A pool that requires a machine label of EKS Auto Mode is one of its pools, whatever its NodeClass is called."""
    asked = pool("p", requirements=[wants(CATEGORY, "In", "t")])
    assert offered(asked, pod("a", "100m")) == ["t3.medium"]


def test_other_pools_launch_small_types() -> None:
    """The sizes that EKS Auto Mode excludes are offered to all other pools."""
    assert offered(pool(), pod("a", "100m"))[0] == "t3.micro"


@pytest.mark.parametrize(
    ("wanted", "types"),
    [
        (wants(f"{AUTO}/instance-cpu", "Gt", "1"), ["t3.medium", "c5.large", "m5.large", "r5.large"]),
        (wants(f"{AUTO}/instance-size", "NotIn", "large"), ["t3.medium"]),
        (wants(f"{AUTO}/instance-family", "In", "m5", "r5"), ["m5.large", "r5.large"]),
        (wants(f"{AUTO}/compute-type", "In", "auto"), ["t3.medium", "c5.large", "m5.large", "r5.large"]),
        (wants(f"{AUTO}/nodeclass", "In", "default"), ["t3.medium", "c5.large", "m5.large", "r5.large"]),
        (wants("karpenter.k8s.aws/instance-family", "In", "m5"), ["m5.large"]),
    ],
)
def test_requirements_of_auto_mode(wanted: dict[str, Any], types: list[str]) -> None:
    """Each kind of requirement of a pool of EKS Auto Mode narrows its types."""
    assert offered(auto_pool(wanted), pod("a", "100m")) == types


def test_min_values_count_auto_modes_labels() -> None:
    """A minValues on a label of EKS Auto Mode counts the values that its types have."""
    three = auto_pool(wants(f"{AUTO}/instance-family", "Exists", minValues=3))
    assert len(offered(three, pod("a"))) == 4
    five = auto_pool(wants(f"{AUTO}/instance-family", "Exists", minValues=5))
    assert place(snapshot(five, pod("a"), kinds=KINDS)).new == ()


MIXED = (auto_pool(name="auto"), pool("own", group="karpenter.k8s.aws"))


@pytest.mark.parametrize(
    ("label", "value", "home"),
    [
        (f"{AUTO}/compute-type", "auto", "new auto #1"),
        (CATEGORY, "m", "new auto #1"),
        ("karpenter.k8s.aws/instance-category", "m", "new own #1"),
    ],
)
def test_pods_in_a_mixed_cluster_go_where_their_label_is(label: str, value: str, home: str) -> None:
    """A pod that selects a label of one kind of pool gets no node of the other kind."""
    seen = snapshot(*MIXED, pod("a", nodeSelector={label: value}), kinds=KINDS)
    assert homes(place(seen)) == {"a": home}


def test_only_the_other_kind_of_pool_takes_no_such_pod() -> None:
    """Nodes of EKS Auto Mode don't carry the labels of Karpenter's AWS provider."""
    waiting = pod("a", nodeSelector={"karpenter.k8s.aws/instance-category": "m"})
    assert "instance-category" in unplaced(place(snapshot(auto_pool(), waiting, kinds=KINDS)))["a"]


@pytest.mark.parametrize(
    "key",
    [
        "karpenter.k8s.aws/instance-colour",
        "eks.amazonaws.com/capacity-block",
        "karpenter.azure.com/sku-storage-ephemeralos-maxsize",
        "karpenter.k8s.gcp/instance-colour",
        "cloud.google.com/compute-class",
        "node.cloud.google.com/compute-class",
    ],
)
@pytest.mark.parametrize("operator", ["In", "Exists", "Gt", "Gte", "Lt", "Lte"])
def test_an_unknown_label_of_a_cloud_is_named_and_nothing_is_launched(key: str, operator: str) -> None:
    """A pool that requires a label of a cloud's domain that no type has launches nothing; a warning names it."""
    seen = snapshot(
        pool(requirements=[wants(key, operator, "7")] if operator != "Exists" else [wants(key, operator)]), pod("a")
    )
    result = place(seen)
    assert result.new == ()
    assert f"pool p requires {key}, which no instance type has" in unplaced(result)["a"]
    (said,) = warnings(seen)
    assert said.startswith(f"NodePool p: it requires {key}, a label that no instance type has")


@pytest.mark.parametrize("operator", ["NotIn", "DoesNotExist"])
def test_requirements_that_need_no_label_pass(operator: str) -> None:
    """NotIn and DoesNotExist on an unknown label of the cloud exclude nothing."""
    values = ["x"] if operator == "NotIn" else []
    seen = snapshot(pool(requirements=[wants("karpenter.k8s.aws/instance-colour", operator, *values)]), pod("a"))
    assert homes(place(seen)) == {"a": "new p #1"}
    assert warnings(seen) == []


def test_karpenters_rules_let_unknown_labels_pass() -> None:
    """Under Karpenter's rules an unknown label of the cloud is no obstacle."""
    asked = pool(requirements=[wants("karpenter.k8s.aws/instance-colour", "In", "red")])
    seen = snapshot(asked, pod("a"), settings=KARPENTER_1_15)
    assert homes(place(seen)) == {"a": "new p #1"}
    assert not any("instance-colour" in said for said in warnings(seen))


def test_labels_that_the_template_sets_are_known() -> None:
    """A pool may require a label of the cloud that its own template gives to its nodes."""
    key = "cloud.google.com/gke-nodepool"
    seen = snapshot(pool(requirements=[wants(key, "In", "x")], labels={key: "x"}), pod("a"))
    assert homes(place(seen)) == {"a": "new p #1"}


def test_labels_of_other_domains_are_the_users_own() -> None:
    """A requirement outside the clouds' domains becomes a label of the node, as ever."""
    seen = snapshot(
        pool(requirements=[wants("example.com/team", "In", "x")]), pod("a", nodeSelector={"example.com/team": "x"})
    )
    assert homes(place(seen)) == {"a": "new p #1"}


def test_a_pool_that_no_type_meets_is_named() -> None:
    """A pool whose known requirements leave no type launches nothing, and a warning says so."""
    seen = snapshot(auto_pool(wants(f"{AUTO}/instance-size", "In", "micro")), pod("a"), kinds=KINDS)
    assert place(seen).new == ()
    assert [said for said in warnings(seen) if "no instance type" in said and "meets its requirements" in said]


def test_the_other_pools_go_on() -> None:
    """One pool with an unknown label doesn't keep others from launching."""
    broken = pool("broken", requirements=[wants("karpenter.k8s.aws/x", "Exists")], weight=50)
    assert homes(place(snapshot(broken, pool("fine"), pod("a")))) == {"a": "new fine #1"}


def test_a_reservation_is_a_label_only_where_one_is_offered() -> None:
    """A pool that requires a capacity reservation launches nothing if the catalogue offers none."""
    asked = pool(requirements=[wants("karpenter.k8s.aws/capacity-reservation-id", "In", "cr-1")])
    seen = snapshot(asked, pod("a"))
    assert place(seen).new == ()
    assert "capacity-reservation-id" in warnings(seen)[0]


def test_launched_machines_carry_auto_modes_labels() -> None:
    """A simulated machine of EKS Auto Mode gets its labels, found through a claim that uses them."""
    wanted = [SelectorRequirement(key=CATEGORY, operator="In", values=("m",))]
    machine = cheapest(wanted, {"cpu": 1500}, KINDS)
    assert machine is not None
    labels = labels_of(machine, AUTO)
    assert (machine.kind.name, labels[CATEGORY], labels[f"{AUTO}/compute-type"]) == ("m5.large", "m", "auto")
    assert not any(key.startswith("karpenter.k8s.aws/") for key in labels)
    assert labels_of(machine)["karpenter.k8s.aws/instance-category"] == "m"


def test_views_follow_the_pools() -> None:
    """When a pool of EKS Auto Mode comes or goes, the next snapshot sees the types that the pools now see."""
    waiting = pod("a", "100m", nodeSelector={CATEGORY: "m"})
    first = snapshot(pool("own"), waiting, kinds=KINDS)
    assert homes(place(first)) == {}
    second = Snapshot(snapshot(*MIXED, waiting).cluster, first.surroundings.given, DOVETAIL, NOW, first)
    assert homes(place(second)) == {"a": "new auto #1"}
    third = Snapshot(first.cluster, first.surroundings.given, DOVETAIL, NOW, second)
    assert homes(place(third)) == {}


AKS_ADD_ON = node_affinity([wants("kubernetes.azure.com/cluster", "Exists")])


def test_add_ons_of_aks_find_new_nodes() -> None:
    """Add-ons of AKS require the label kubernetes.azure.com/cluster, which every node of AKS has."""
    catalogue = load_catalogue("azure:westeurope")
    objects = (pool("p", group="karpenter.azure.com"), pod("a", affinity=AKS_ADD_ON))
    (new,) = place(snapshot(*objects, kinds=catalogue.instance_types)).new
    machine = Machine(kind=new.instance_types[0], offering=new.instance_types[0].offerings[0])
    assert "kubernetes.azure.com/cluster" in labels_of(machine)


def test_built_in_tables_have_the_labels_that_follow_from_a_type() -> None:
    """Flex types, tenancy and Google Cloud's categories are labels of the built-in tables."""
    aws = {entry.name: entry for entry in load_catalogue("aws:us-east-1").instance_types}
    flex = {r.values for r in aws["m7i-flex.large"].requirements if r.key.endswith("capability-flex")}
    plain = {r.values for r in aws["m5.large"].requirements if r.key.endswith("capability-flex")}
    assert (flex, plain) == ({("true",)}, {("false",)})
    gcp = {entry.name: entry for entry in load_catalogue("gcp:europe-west1").instance_types}
    assert {r.values for r in gcp["n2d-standard-2"].requirements if r.key.endswith("/instance-category")} == {("n",)}
