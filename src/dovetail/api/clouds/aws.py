"""The built-in EC2 table: types, prices and kubelet overheads of a region, as Karpenter's AWS provider computes them.

Knows nothing of a live cloud. The figures are those of `api.clouds.tables`.

Overheads: memory that the hypervisor keeps is 7.5 % of what the type has (less 64 MiB on arm64); kube-reserved memory
is 255 MiB + 11 MiB per pod; 100 MiB are the hard eviction threshold. Reserved CPU is 6 % of the first core, 1 % of the
second, 0.5 % of the next two and 0.25 % of the rest. These reproduce Karpenter's published allocatable figures.
"""

from typing import Final

from dovetail.api.clouds.tables import Row, any_of, built_in, label, offering, one_of, rows
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.names import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, OS, REGION, SPOT, ZONE

ZONE_ID: Final = "topology.k8s.aws/zone-id"
WINDOWS_BUILD: Final = "node.kubernetes.io/windows-build"
_AWS: Final = "karpenter.k8s.aws/"
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_ROOT_DISK: Final = 20 * _GIB
_ROOT_DISK_OVERHEAD: Final = 3 * _GIB

# Label suffix and its column; if the column is empty or 0, the type does not have the label.
_LABEL_COLUMNS: Final = (
    ("instance-category", "category"),
    ("instance-family", "family"),
    ("instance-generation", "generation"),
    ("instance-size", "size"),
    ("instance-cpu", "vcpu"),
    ("instance-cpu-manufacturer", "cpu_manufacturer"),
    ("instance-memory", "memory_mib"),
    ("instance-hypervisor", "hypervisor"),
    ("instance-ebs-bandwidth", "ebs_mbps"),
    ("instance-network-bandwidth", "net_mbps"),
    ("instance-gpu-name", "gpu_name"),
    ("instance-gpu-manufacturer", "gpu_manufacturer"),
    ("instance-gpu-count", "gpu_count"),
    ("instance-gpu-memory", "gpu_mem_mib"),
    ("instance-accelerator-name", "accel_name"),
    ("instance-accelerator-manufacturer", "accel_manufacturer"),
    ("instance-accelerator-count", "accel_count"),
    ("instance-local-nvme", "local_nvme_gb"),
)
_GPU_RESOURCES: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
_ACCELERATOR_RESOURCES: Final = {"aws": "aws.amazon.com/neuron", "habana": "habana.ai/gaudi"}


def ec2_catalogue(region: str) -> Catalogue:
    """Return the built-in table of one region; raise KeyError if there is none."""

    def build(spec: Row, row: Row) -> InstanceType:
        return instance_type(spec, region, row["on_demand"], _zones(row["zones"]))

    return built_in("aws", region, "EC2", build)


def specifications() -> dict[str, Row]:
    """Return what the built-in table knows about each type, in any region."""
    return {row["name"]: row for row in rows("aws/types")}


def instance_type(spec: Row, region: str, on_demand: str, zones: list[tuple[str, str, str]]) -> InstanceType:
    """Build one type; `zones` are (zone id, zone name, spot price or nothing)."""
    offerings: list[Offering] = []
    for _, zone, spot in zones:
        if on_demand:
            offerings.append(offering(ON_DEMAND, zone, on_demand))
        if spot:
            offerings.append(offering(SPOT, zone, spot))
    requirements = [
        one_of(INSTANCE_TYPE, spec["name"]),
        one_of(ARCH, spec["arch"]),
        one_of(OS, "linux"),
        one_of(REGION, region),
        any_of(ZONE, {name for _, name, _ in zones}),
        any_of(ZONE_ID, {zone for zone, _, _ in zones}),
        any_of(CAPACITY_TYPE, {entry.capacity_type for entry in offerings}),
        one_of(_AWS + "instance-capability-flex", "true" if spec["flex"] == "1" else "false"),
        one_of(_AWS + "instance-tenancy", "default"),
        one_of(_AWS + "instance-encryption-in-transit-supported", "true" if spec["hypervisor"] == "nitro" else "false"),
    ]
    requirements += [label(_AWS + suffix, spec[column]) for suffix, column in _LABEL_COLUMNS]
    return InstanceType(
        name=spec["name"],
        requirements=tuple(requirements),
        capacity=_capacity(spec),
        overhead=_overhead(spec),
        offerings=tuple(offerings),
    )


def _capacity(spec: Row) -> dict[str, int]:
    memory_mib = int(spec["memory_mib"]) - (64 if spec["arch"] == "arm64" else 0)
    capacity = {
        "cpu": int(spec["vcpu"]) * 1000,
        "memory": (memory_mib - -(-memory_mib * 75 // 1000)) * _MIB,
        "ephemeral-storage": _ROOT_DISK,
        "pods": int(spec["max_pods"]),
    }
    extended = (
        (_GPU_RESOURCES.get(spec["gpu_manufacturer"]), spec["gpu_count"]),
        (_ACCELERATOR_RESOURCES.get(spec["accel_manufacturer"]), spec["accel_count"]),
        ("vpc.amazonaws.com/pod-eni", spec["pod_eni"]),
        ("vpc.amazonaws.com/efa", spec["efa"]),
    )
    for resource, count in extended:
        if resource and count and int(count) > 0:
            capacity[resource] = int(count)
    return capacity


def reserved_cpu_milli(cores: int) -> int:
    """Return the CPU reserved for the kubelet, in millicores, rounded down as Karpenter does."""
    tenths = 600 * min(cores, 1) + 100 * min(max(cores - 1, 0), 1) + 50 * min(max(cores - 2, 0), 2)
    tenths += 25 * max(cores - 4, 0)
    return tenths // 10


def _overhead(spec: Row) -> dict[str, int]:
    return {
        "cpu": reserved_cpu_milli(int(spec["vcpu"])),
        "memory": (255 + 11 * int(spec["max_pods"]) + 100) * _MIB,
        "ephemeral-storage": _ROOT_DISK_OVERHEAD,
    }


def _zones(cell: str) -> list[tuple[str, str, str]]:
    parts = [entry.split("|") for entry in cell.split(";") if entry]
    return [(zone, name, spot) for zone, name, spot in parts]
