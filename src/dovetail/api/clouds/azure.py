"""The built-in Azure table: VM sizes, prices and overheads of a region, as Karpenter's Azure provider computes them.

Only sizes that the provider offers are listed. Capacity is the whole GiB of the size less 7.5 % for the hypervisor,
250 pods (Azure CNI overlay) and an OS disk of 128 GB. Reserved CPU is 6 % of the first core, 4 % of the second, 2 % of
the next two and 1 % of the rest; reserved memory is 25, 20, 10, 6 and 2 % of the brackets that end at 4, 8, 16 and
128 GiB, plus 750 MiB for eviction. Knows nothing of a live cloud.
"""

from typing import Final

from dovetail.api.clouds.tables import Row, any_of, built_in, graded, label, offering, one_of
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.names import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, OS, REGION, SPOT, ZONE
from dovetail.model.objects import SelectorRequirement

REGIONAL_ZONE: Final = "0"
"""The zone label of machines that Azure places anywhere in the region."""
_AZURE: Final = "karpenter.azure.com/"
_AKS: Final = "kubernetes.azure.com/"
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_PODS: Final = 250
_OS_DISK: Final = 128 * 10**9
_EVICTION: Final = 750 * _MIB
_CPU_BRACKETS: Final = ((1000, 600), (2000, 400), (4000, 200), (None, 100))
_MEMORY_BRACKETS: Final = ((4096, 2500), (8192, 2000), (16384, 1000), (131072, 600), (None, 200))
_LABEL_COLUMNS: Final = (
    ("sku-name", "name"),
    ("sku-family", "sku_family"),
    ("sku-series", "sku_series"),
    ("sku-version", "sku_version"),
    ("sku-cpu", "vcpu"),
    ("sku-memory", "memory_mib"),
    ("sku-gpu-count", "gpu_count"),
    ("sku-gpu-name", "gpu_name"),
    ("sku-gpu-manufacturer", "gpu_manufacturer"),
)
_GPU_RESOURCES: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}


def azure_catalogue(region: str) -> Catalogue:
    """Return the built-in table of one region; raise KeyError if there is none."""
    return built_in("azure", region, "Azure", lambda spec, row: _instance_type(spec, region, row))


def _instance_type(spec: Row, region: str, row: Row) -> InstanceType:
    zones = [f"{region}-{number}" for number in row["zones"].split(";") if number] or [REGIONAL_ZONE]
    offerings = [entry for zone in zones for entry in _offerings(zone, row)]
    if zones != [REGIONAL_ZONE]:
        # A node in the regional zone has a price, but nothing is launched there while zones are available.
        offerings += [_unavailable(entry) for entry in _offerings(REGIONAL_ZONE, row)]
    return InstanceType(
        name=spec["name"],
        requirements=_requirements(spec, region, zones, offerings),
        capacity=_capacity(spec),
        overhead=_overhead(spec),
        offerings=tuple(offerings),
    )


def _requirements(
    spec: Row, region: str, zones: list[str], offerings: list[Offering]
) -> tuple[SelectorRequirement, ...]:
    return (
        one_of(INSTANCE_TYPE, spec["name"]),
        one_of(ARCH, spec["arch"]),
        one_of(OS, "linux"),
        one_of(REGION, region),
        any_of(ZONE, set(zones)),
        any_of(CAPACITY_TYPE, {entry.capacity_type for entry in offerings}),
        one_of(_AZURE + "placement-scope", "regional" if zones == [REGIONAL_ZONE] else "zonal"),
        one_of(_AZURE + "sku-networking-accelerated", "true" if spec["accel_net"] == "1" else "false"),
        one_of(_AZURE + "sku-storage-premium-capable", "true" if spec["premium_io"] == "1" else "false"),
        SelectorRequirement(key=f"{_AKS}cluster", operator="Exists"),  # required by the add-ons of AKS
        any_of(f"{_AKS}mode", {"system", "user"}),
        one_of(f"{_AKS}sku-cpu", spec["vcpu"]),
        one_of(f"{_AKS}sku-memory", spec["memory_mib"]),
        *(label(_AZURE + suffix, spec[column]) for suffix, column in _LABEL_COLUMNS),
    )


def _offerings(zone: str, row: Row) -> list[Offering]:
    found = [offering(ON_DEMAND, zone, row["on_demand"])]
    return [*found, offering(SPOT, zone, row["spot"])] if row["spot"] else found


def _unavailable(entry: Offering) -> Offering:
    return Offering(
        capacity_type=entry.capacity_type,
        zone=entry.zone,
        price=entry.price,
        price_float=entry.price_float,
        available=False,
    )


def _capacity(spec: Row) -> dict[str, int]:
    memory = int(spec["memory_mib"]) // 1024 * _GIB
    capacity = {
        "cpu": int(spec["vcpu"]) * 1000,
        "memory": memory - -(-memory * 75 // 1000),
        "ephemeral-storage": _OS_DISK,
        "pods": _PODS,
    }
    resource = _GPU_RESOURCES.get(spec["gpu_manufacturer"].lower())
    if resource and spec["gpu_count"] and int(spec["gpu_count"]) > 0:
        capacity[resource] = int(spec["gpu_count"])
    return capacity


def _overhead(spec: Row) -> dict[str, int]:
    return {
        "cpu": sum(graded(int(spec["vcpu"]) * 1000, _CPU_BRACKETS)) // 10_000,
        "memory": sum(graded(int(spec["memory_mib"]), _MEMORY_BRACKETS)) // 10_000 * _MIB + _EVICTION,
    }
