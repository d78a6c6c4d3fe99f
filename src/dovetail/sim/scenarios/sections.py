"""The format of a scenario's file: one struct per section, camelCase in the file, unknown fields are errors.

Plain shapes with their defaults; times and names are checked by `sim.scenario`, which reads them.
docs/internals/simulator.md describes the format.
"""

from typing import Any

import msgspec

from dovetail.model.objects import ResourceList, SelectorRequirement, Taint, Toleration


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Base of all sections: an unknown field is an error."""


class OfferedType(_Strict, frozen=True, kw_only=True):
    """An instance type given in the file: `cpu` cores, `memory`, dollars per hour on demand and, if offered, spot."""

    name: str
    cpu: int
    memory: str
    price: float
    spot: float | None = None
    pods: int = 58
    arch: str = "amd64"
    family: str = ""


class SpotPrices(_Strict, frozen=True, kw_only=True):
    """How spot prices move: every so often, by this relative deviation."""

    every: str = "10m"
    sigma: float = 0.02


class CloudSection(_Strict, frozen=True, kw_only=True):
    """How long the cloud and machines take, as `low-high` or one duration."""

    create: str = "2s-4s"
    register: str = "20s-40s"
    ready: str = "5s-12s"
    shutdown: str = "2s-6s"
    interruptions_per_hour: float = 0.0
    spot_prices: SpotPrices | None = None
    zone_choice: str = "any"


class PoolSection(_Strict, frozen=True, kw_only=True):
    """A NodePool: its requirements beside the offered types, its base disruption policy."""

    name: str
    requirements: tuple[SelectorRequirement, ...] = ()
    disruption: dict[str, Any] = {}
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    limits: ResourceList = {}
    weight: int | None = None
    expire_after: str | None = "720h"
    termination_grace_period: str | None = None
    managed: bool = True


class NodesSection(_Strict, frozen=True, kw_only=True):
    """Nodes that are there from the start. `age` may be a range: they were born at different times."""

    pool: str
    type: str
    count: int = 1
    zones: tuple[str, ...] = ()
    capacity_type: str = "on-demand"
    age: str = "1h"


class PdbSection(_Strict, frozen=True, kw_only=True):
    """A PodDisruptionBudget for one workload's pods."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class SpreadSection(_Strict, frozen=True, kw_only=True):
    """A topology spread constraint on the workload's own pods."""

    over: str = "zone"
    skew: int = 1
    must: bool = True


class CurveSection(_Strict, frozen=True, kw_only=True):
    """A daily load curve that an autoscaler follows: replicas between `low` and `high`, highest at `peak`."""

    low: int
    high: int
    peak: str = "14h"
    noise: float = 0.0
    every: str = "1m"
    period: str = "24h"
    weekend: float = 1.0


class WorkloadSection(_Strict, frozen=True, kw_only=True):
    """Workloads of one sort: `count` of them, numbered; where a list is given, each draws one of its values."""

    name: str
    kind: str = "Deployment"
    count: int = 1
    namespace: str = "default"
    replicas: int | tuple[int, ...] = 1
    cpu: str | int | tuple[str | int, ...] = "100m"
    memory: str | int | tuple[str | int, ...] = "128Mi"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[SpreadSection, ...] = ()
    apart: str | None = None
    priority: int | None = None
    pdb: PdbSection | None = None
    surge: bool = False
    start: str = "3s-8s"
    stop: str = "2s-5s"
    grace: int = 30
    duration: str | None = None
    every: str | None = None
    batch: int | tuple[int, ...] = 1
    curve: CurveSection | None = None


class ShrinkStep(_Strict, frozen=True, kw_only=True):
    """Some randomly chosen workloads gain or lose replicas."""

    workloads: int = 1
    by: int | tuple[int, ...] = -1
    matching: str = ""
    least: int = 1


class ImageStep(_Strict, frozen=True, kw_only=True):
    """A machine image is rolled out; nodes of another one drift `within` that. `bad`: machines with it never join."""

    id: str
    node_class: str = "default"
    bad: bool = False
    within: str = "5m"


class StockStep(_Strict, frozen=True, kw_only=True):
    """The cloud has no machines of a type (and zone, and capacity type) for a while."""

    type: str
    zone: str = ""
    capacity_type: str = ""
    for_: str = msgspec.field(name="for", default="10m")


class PriceStep(_Strict, frozen=True, kw_only=True):
    """A price changes."""

    type: str
    price: float
    zone: str = ""
    capacity_type: str = "on-demand"


class PoolStep(_Strict, frozen=True, kw_only=True):
    """A pool's disruption policy, or labels of its template, change: its nodes drift `within` that."""

    name: str
    disruption: dict[str, Any] = {}
    labels: dict[str, str] = {}
    within: str = "5m"


class KillStep(_Strict, frozen=True, kw_only=True):
    """Machines die."""

    nodes: int = 1


class SickStep(_Strict, frozen=True, kw_only=True):
    """Nodes fall ill for a while: a condition takes a status. `Ready` with `Unknown`: their kubelets say nothing."""

    nodes: int = 1
    pool: str = ""
    condition: str = "Ready"
    status: str = "Unknown"
    for_: str = msgspec.field(name="for", default="1h")


class StepSection(_Strict, frozen=True, kw_only=True):
    """Something from outside, once (`at`) or again and again (`every`, from `from` until `until`)."""

    at: str | None = None
    every: str | None = None
    from_: str = msgspec.field(name="from", default="0s")
    until: str | None = None
    scale: dict[str, int] | None = None
    change: ShrinkStep | None = None
    image: ImageStep | None = None
    out_of_stock: StockStep | None = None
    price: PriceStep | None = None
    pool: PoolStep | None = None
    kill: KillStep | None = None
    sick: SickStep | None = None


class PolicySection(_Strict, frozen=True, kw_only=True):
    """A policy to try: whose rules, which settings, and what it changes in every pool's `disruption`."""

    profile: str = "dovetail"
    base: str = ""
    disruption: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    beside_karpenter: bool = False


class TraceSection(_Strict, frozen=True, kw_only=True):
    """Pods that come and go as a trace file says; `file` may be given on the command line instead.

    `skip`: how much of it to leave out at its beginning; `auto`: the whole hours before the first pod. `share`: which
    part of the pods to take, the same ones each time.
    """

    file: str = ""
    namespace: str = "trace"
    speed: float = 1.0
    limit: int = 0
    share: float = 1.0
    cpu_scale: float = 1.0
    memory_scale: float = 1.0
    skip: str = "0s"


class ArrivalsSection(_Strict, frozen=True, kw_only=True):
    """Pods arrive as in the captured cluster: the last `window` before the capture is replayed."""

    from_: str = msgspec.field(name="from", default="captured")
    window: str = "24h"


class ScenarioFile(_Strict, frozen=True, kw_only=True):
    """The whole file."""

    name: str
    about: str = ""
    start: str = "2026-01-05T00:00:00Z"
    until: str
    warm_up: str = "10m"
    catalogue: str | tuple[OfferedType, ...]
    types: tuple[str, ...] = ()
    zones: tuple[str, ...] = ("zone-a", "zone-b", "zone-c")
    cloud: CloudSection = CloudSection()
    prices: dict[str, Any] = {}
    pools: tuple[PoolSection, ...] = ()
    nodes: tuple[NodesSection, ...] = ()
    workloads: tuple[WorkloadSection, ...] = ()
    trace: TraceSection | None = None
    cluster: str | None = None
    arrivals: str | ArrivalsSection | None = None
    steps: tuple[StepSection, ...] = ()
    policies: dict[str, PolicySection]
    moral: str = ""
