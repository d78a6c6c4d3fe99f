"""The built-in tables of every cloud, and which of them a cluster gets."""

import csv
import gzip
import io
import json

import pytest

from dovetail.api.catalogue import CatalogueError, decode_catalogue, encode_catalogue, load_catalogue
from dovetail.api.clouds.detect import choose_catalogue, home_of
from dovetail.api.clouds.tables import regions
from dovetail.model.catalogue import InstanceType
from dovetail.model.money import parse_money
from dovetail.model.objects import Node, NodeSpec, NodeStatus, ObjectMeta
from dovetail.plan.own_catalogue import catalogue_to_fill_in
from tests.paths import SHARED, needs_shared

MIB = 1 << 20
GIB = 1 << 30


def kind(where: str, name: str) -> InstanceType:
    """Return one type of a built-in table."""
    return next(entry for entry in load_catalogue(where).instance_types if entry.name == name)


def test_every_region_loads_and_every_price_is_positive() -> None:
    """33 AWS, 57 Azure and 43 Google Cloud regions have types, zones and prices above zero."""
    counts = {cloud: sum(entry.cloud == cloud for entry in regions()) for cloud in ("aws", "azure", "gcp")}
    assert counts == {"aws": 33, "azure": 57, "gcp": 43}
    for entry in regions():
        catalogue = load_catalogue(entry.catalogue)
        assert catalogue.as_of == entry.as_of
        assert catalogue.instance_types
        for item in catalogue.instance_types:
            assert item.offerings, (entry.catalogue, item.name)
            assert all(offering.price > 0 and offering.zone for offering in item.offerings)


@pytest.mark.parametrize(
    ("where", "name", "cpu", "memory"),
    [
        ("azure:westeurope", "Standard_D4s_v5", 3860, 117432 * MIB // 10),
        ("azure:westeurope", "Standard_D2s_v5", 1900, None),
        ("azure:westeurope", "Standard_D8s_v5", 7820, None),
        ("azure:westeurope", "Standard_D16s_v5", 15740, None),
        ("azure:westeurope", "Standard_D64s_v5", 63260, None),
        ("gcp:europe-west1", "e2-medium", 2000 - 1060 - 100, None),
        ("gcp:europe-west1", "n2-standard-4", 4000 - 80 - 100, None),
    ],
)
def test_allocatable_is_the_providers(where: str, name: str, cpu: int, memory: int | None) -> None:
    """CPU and memory that pods get are what the cloud's Karpenter provider plans with."""
    room = kind(where, name).allocatable()
    assert room["cpu"] == cpu
    if memory is not None:
        assert abs(room["memory"] - memory) <= MIB


@pytest.mark.parametrize(
    ("memory_gib", "reserved_mib"), [(16, 1024 + 819 + 819), (4, 1024), (128, 1024 + 819 + 819 + 6881)]
)
def test_reserved_memory_of_google_cloud_is_cut_in_each_bracket(memory_gib: int, reserved_mib: int) -> None:
    """25, 20, 10, 6 and 2 percent of the brackets, each cut to whole MiB."""
    from dovetail.api.clouds.gcp import _reserved_memory_mib

    assert _reserved_memory_mib(memory_gib * 1024) == reserved_mib


def test_azure_zones_carry_the_region_and_the_regional_zone_launches_nothing() -> None:
    """Zones are REGION-N; zone 0 has a price for nodes that are there, and nothing is launched into it."""
    size = kind("azure:westeurope", "Standard_D4s_v5")
    zones = {offering.zone: offering.available for offering in size.offerings}
    assert zones == {"westeurope-1": True, "westeurope-2": True, "westeurope-3": True, "0": False}
    only = kind("azure:westus", "Standard_D4s_v5")
    assert {offering.zone: offering.available for offering in only.offerings} == {"0": True}


def test_google_cloud_counts_one_gpu_as_its_provider_does() -> None:
    """A type with eight GPUs is planned with one: a claim for more would never launch."""
    assert kind("gcp:us-central1", "a2-highgpu-8g").capacity["nvidia.com/gpu"] == 1


def test_what_is_not_known_is_said() -> None:
    """A region without spot prices has no spot offering and says so."""
    entry = next(region for region in regions() if region.catalogue == "aws:sa-east-1")
    assert "spot prices are not known" in entry.gaps
    kinds = {
        offering.capacity_type for item in load_catalogue("aws:sa-east-1").instance_types for offering in item.offerings
    }
    assert kinds == {"on-demand"}


@needs_shared
@pytest.mark.parametrize(
    ("cloud", "file"), [("azure", "azure-prices-2026-06-18.csv.gz"), ("gcp", "gcp-prices-2026-08-03.csv.gz")]
)
def test_prices_are_those_of_the_source(cloud: str, file: str) -> None:
    """On-demand prices of a region equal the compiled source, to the last digit."""
    region = {"azure": "northeurope", "gcp": "europe-west4"}[cloud]
    raw = gzip.decompress((SHARED / "catalog" / "clouds" / file).read_bytes()).decode()
    prices = {row["name"]: row["on_demand"] for row in csv.DictReader(io.StringIO(raw)) if row["region"] == region}
    for item in load_catalogue(f"{cloud}:{region}").instance_types:
        on_demand = {offering.price for offering in item.offerings if offering.capacity_type == "on-demand"}
        assert on_demand == {parse_money(prices[item.name])}


def node(name: str, provider_id: str = "", **labels: str) -> Node:
    """Build a node; `_` in a label's key stands for `/` once and `.` elsewhere where the table below needs it."""
    return Node(metadata=ObjectMeta(name=name, labels=labels), spec=NodeSpec(provider_id=provider_id))


REGION = "topology.kubernetes.io/region"
ZONE = "topology.kubernetes.io/zone"
POOL = "karpenter.sh/nodepool"


@pytest.mark.parametrize(
    ("nodes", "catalogue"),
    [
        ([node("a", "aws:///eu-central-1a/i-0abc")], "aws:eu-central-1"),
        ([node("a", "gce://project/europe-west4-b/gke-x")], "gcp:europe-west4"),
        ([node("a", "azure:///subscriptions/x", **{ZONE: "westeurope-2"})], "azure:westeurope"),
        ([node("a", "azure:///subscriptions/x", **{REGION: "westeurope", ZONE: "0"})], "azure:westeurope"),
        ([node("a", "kwok://a", **{REGION: "us-east-1", "karpenter.k8s.aws/instance-family": "m5"})], "aws:us-east-1"),
        ([node("a", "", **{REGION: "europe-west1"})], "gcp:europe-west1"),
        (
            [
                node("a", "aws:///us-east-1a/i-1"),
                node("b", "aws:///us-east-1a/i-2"),
                node("c", "aws:///us-west-2a/i-3", **{POOL: "p"}),
            ],
            "aws:us-west-2",
        ),
    ],
)
def test_the_catalogue_of_the_nodes(nodes: list[Node], catalogue: str) -> None:
    """Cloud and region are read off provider ids and labels; managed nodes count first."""
    assert choose_catalogue(nodes)[0] == catalogue


def test_nodes_of_two_regions_are_noted() -> None:
    """The region of most nodes counts, and a note names the other."""
    nodes = [node("a", "aws:///us-east-1a/i-1"), node("b", "aws:///us-east-1b/i-2"), node("c", "aws:///us-west-2a/i-3")]
    where, note = choose_catalogue(nodes)
    assert where == "aws:us-east-1"
    assert "aws:us-west-2" in note


@pytest.mark.parametrize("nodes", [[], [node("a", "kwok://a")], [node("a", "aws:///ap-east-2a/i-1")]])
def test_an_unknown_home_says_what_to_do(nodes: list[Node]) -> None:
    """Without a table the answer is one sentence with the command that makes a file."""
    with pytest.raises(CatalogueError, match="catalog export --from-nodes"):
        choose_catalogue(nodes)


def test_a_region_with_a_typo_is_answered_with_the_nearest() -> None:
    """`aws:eu-wst-1` suggests `aws:eu-west-1`."""
    with pytest.raises(CatalogueError, match="did you mean aws:eu-west-1"):
        load_catalogue("aws:eu-wst-1")


def test_a_table_of_each_cloud_survives_its_file_form() -> None:
    """Export and load give the same catalogue."""
    for where in ("azure:uksouth", "gcp:asia-east1"):
        table = load_catalogue(where)
        assert decode_catalogue(encode_catalogue(table), source="x") == table


def test_a_file_to_fill_in_is_made_from_nodes_and_refused_until_filled() -> None:
    """Types, capacity and zones come from the nodes; loading it before the prices are written says what is missing."""
    item = Node(
        metadata=ObjectMeta(
            name="n",
            labels={"node.kubernetes.io/instance-type": "box.4", ZONE: "rack-1", "kubernetes.io/arch": "amd64"},
        ),
        status=NodeStatus(capacity={"cpu": "4", "memory": "16Gi"}, allocatable={"cpu": "3800m", "memory": "15Gi"}),
    )
    document = catalogue_to_fill_in([item])
    with pytest.raises(CatalogueError, match=r"box\.4 has no price in rack-1"):
        decode_catalogue(json.dumps(document).encode(), source="mine.json")
    document["instanceTypes"][0]["offerings"][0]["price"] = 0.2
    loaded = decode_catalogue(json.dumps(document).encode(), source="mine.json")
    (entry,) = loaded.instance_types
    assert entry.allocatable() == {"cpu": 3800, "memory": 15 * GIB}
    assert home_of([item]).catalogue == ""
