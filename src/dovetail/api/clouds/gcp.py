"""The built-in Google Cloud table: machine types, prices and overheads, as Karpenter's GCP provider computes them.

Capacity is the memory less 6.5 %, 110 pods, and the local SSDs or else a boot disk of 100 GiB. Reserved CPU is 6 % of
the first core, 1 % of the second, 0.5 % of the next two and 0.25 % of the rest (1,060 millicores on shared cores), plus
100 millicores; reserved memory is 25, 20, 10, 6 and 2 % of the brackets that end at 4, 8, 16 and 128 GiB, plus 100 MiB
for eviction. The provider counts one GPU however many a type has, and so does this table, so that Dovetail plans no
launch that the provider would refuse. Knows nothing of a live cloud.
"""

from itertools import takewhile
from typing import Final

from dovetail.api.clouds.aws import reserved_cpu_milli
from dovetail.api.clouds.tables import Row, any_of, built_in, graded, label, offering, one_of
from dovetail.model.catalogue import Catalogue, InstanceType
from dovetail.model.names import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, OS, REGION, SPOT, ZONE
from dovetail.model.objects import SelectorRequirement

_GCP: Final = "karpenter.k8s.gcp/"
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_PODS: Final = 110
_BOOT_DISK_GIB: Final = 100
_SSD_GIB: Final = 375
_Z3_SSD_GIB: Final = 3000
_SSD_RESERVED_GIB: Final = (50, 75, 100)
_SHARED_CORE_RESERVED: Final = 1060
_SYSTEM_RESERVED: Final = 100
_EVICTION_MIB: Final = 100
_MEMORY_BRACKETS: Final = ((4096, 2500), (8192, 2000), (16384, 1000), (131072, 600), (None, 200))
_LABEL_COLUMNS: Final = (
    ("instance-family", "family"),
    ("instance-shape", "shape"),
    ("instance-generation", "generation"),
    ("instance-size", "size"),
    ("instance-cpu", "vcpu"),
    ("instance-memory", "memory_mib"),
    ("instance-gpu-name", "gpu_name"),
)


def gcp_catalogue(region: str) -> Catalogue:
    """Return the built-in table of one region; raise KeyError if there is none."""
    return built_in("gcp", region, "Google Cloud", lambda spec, row: _instance_type(spec, region, row))


def _instance_type(spec: Row, region: str, row: Row) -> InstanceType:
    zones = [f"{region}-{letter}" for letter in row["zones"].split(";") if letter]
    offerings = [offering(ON_DEMAND, zone, row["on_demand"]) for zone in zones]
    if row["spot"]:
        offerings += [offering(SPOT, zone, row["spot"]) for zone in zones]
    has_gpu = spec["gpu_count"] not in ("", "0")
    requirements: tuple[SelectorRequirement, ...] = (
        one_of(INSTANCE_TYPE, spec["name"]),
        one_of(ARCH, spec["arch"]),
        one_of(OS, "linux"),
        one_of(REGION, region),
        any_of(ZONE, set(zones)),
        any_of("topology.k8s.gcp/zone-id", set(zones)),
        any_of(CAPACITY_TYPE, {entry.capacity_type for entry in offerings}),
        one_of(_GCP + "instance-category", "".join(takewhile(str.isalpha, spec["family"]))),
        *(label(_GCP + suffix, spec[column]) for suffix, column in _LABEL_COLUMNS),
        label(_GCP + "instance-gpu-count", "1" if has_gpu else ""),
        label("cloud.google.com/gke-accelerator", spec["gpu_name"] if has_gpu else ""),
    )
    return InstanceType(
        name=spec["name"],
        requirements=requirements,
        capacity=_capacity(spec, has_gpu=has_gpu),
        overhead=_overhead(spec),
        offerings=tuple(offerings),
    )


def _capacity(spec: Row, *, has_gpu: bool) -> dict[str, int]:
    memory = int(spec["memory_mib"]) * _MIB
    capacity = {
        "cpu": int(spec["vcpu"]) * 1000,
        "memory": memory - -(-memory * 65 // 1000),
        "ephemeral-storage": (int(spec["local_ssd_gib"]) or _BOOT_DISK_GIB) * _GIB,
        "pods": _PODS,
    }
    if has_gpu:
        capacity["nvidia.com/gpu"] = 1
    return capacity


def _overhead(spec: Row) -> dict[str, int]:
    cpu = _SHARED_CORE_RESERVED if spec["shared_core"] == "1" else reserved_cpu_milli(int(spec["vcpu"]))
    return {
        "cpu": cpu + _SYSTEM_RESERVED,
        "memory": (_reserved_memory_mib(int(spec["memory_mib"])) + _EVICTION_MIB) * _MIB,
        "ephemeral-storage": _reserved_disk(int(spec["local_ssd_gib"]), spec["family"]),
    }


def _reserved_memory_mib(memory_mib: int) -> int:
    return 255 if memory_mib <= 1024 else sum(part // 10_000 for part in graded(memory_mib, _MEMORY_BRACKETS))


def _reserved_disk(ssd_gib: int, family: str) -> int:
    """Return the part of the disk that pods don't get: what the system reserves and the eviction threshold of 10 %."""
    if ssd_gib:
        count = max(ssd_gib // (_Z3_SSD_GIB if family == "z3" else _SSD_GIB), 1)
        return _SSD_RESERVED_GIB[min(count, 3) - 1] * _GIB + ssd_gib * _GIB // 10
    disk = _BOOT_DISK_GIB * _GIB
    return min(disk // 2, disk * 35 // 100 + 6 * _GIB, 100 * _GIB) + disk // 10
