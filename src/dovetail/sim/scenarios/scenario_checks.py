"""Checks of a scenario beyond its types: quantities, times, names that must exist, plausible numbers.

Each mistake is reported with file, line and what to write instead, before anything is simulated. Pools
and policies are checked by the rules of the API itself. Sits in sim.scenarios, below `scenario`.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import msgspec

from dovetail.api.findings import Finding, InputError, Severity
from dovetail.api.manifests.validate import disruption_findings, validate_manifest
from dovetail.model import names
from dovetail.model.quantity import QuantityError, resource_amount
from dovetail.sim.scenarios.sections import (
    CurveSection,
    PdbSection,
    PoolSection,
    PoolStep,
    ScenarioFile,
    SickStep,
    StepSection,
    WorkloadSection,
)
from dovetail.sim.world.clock import Span

_STATUSES: Final = ("True", "False", "Unknown")
_ACTIONS: Final = ("scale", "change", "image", "out_of_stock", "price", "pool", "kill", "sick")
_KINDS: Final = ("Deployment", "StatefulSet", "Job", "DaemonSet")
_MANY: Final = 100_000
_INT32: Final = 2**31
_POOL_PATHS: Final = (
    ("spec.template.metadata.labels", "labels"),
    ("spec.template.spec.", ""),
    ("spec.", ""),
    ("metadata.", ""),
)


class FieldReader(Protocol):
    """What knows the lines of the file."""

    def fail(self, path: str, problem: str) -> InputError:
        """Return the mistake as one sentence, with file and line."""
        ...

    def span(self, text: str, path: str) -> Span:
        """Return a duration or a range of them."""
        ...


def check_scenario(reader: FieldReader, wire: ScenarioFile) -> None:
    """Raise for the first mistake."""
    _Checks(reader, wire).run()


class _Checks:
    def __init__(self, reader: FieldReader, wire: ScenarioFile) -> None:
        self.reader, self.wire = reader, wire
        self.pools = [pool.name for pool in wire.pools]

    def run(self) -> None:
        if not self.pools and self.wire.cluster is None:
            self._fail("pools", "no pool is given; write at least one with a `name`")
        if not self.wire.policies:
            problem = "no policy is given; write at least one, such as `karpenter-1.15: {profile: karpenter-1.15}`"
            self._fail("policies", problem)
        if not self.wire.zones:
            self._fail("zones", "no zone is given; write at least one")
        self._check_types()
        for index, pool in enumerate(self.wire.pools):
            if pool.name in self.pools[:index]:
                self._fail(f"pools[{index}].name", f"there is a pool {pool.name!r} already; write another name")
            self._check_pool(pool, f"pools[{index}]")
        for name, policy in self.wire.policies.items():
            self._refuse(disruption_findings(policy.disruption, f"policies.{name}.disruption"))
        self._check_nodes()
        self._check_cloud()
        for index, work in enumerate(self.wire.workloads):
            self._check_workload(work, f"workloads[{index}]")
        for index, step in enumerate(self.wire.steps):
            self._check_step(step, f"steps[{index}]")

    # ------------------------------------------------------------ words

    def _fail(self, path: str, problem: str) -> None:
        raise self.reader.fail(path, problem)

    def _at_least(self, number: float, least: float, path: str, most: float = _MANY) -> None:
        if not (least <= number <= most and math.isfinite(number)):
            self._fail(path, f"{number} given; write a number from {least:g} to {most:g}")

    def _quantity(self, text: str | int, resource: str, path: str) -> None:
        try:
            amount = resource_amount(resource, text)
        except QuantityError as error:
            raise self.reader.fail(path, str(error)) from None
        if amount < 0:
            self._fail(path, f"{text!r} is less than nothing; write a quantity such as 500m or 128Mi")

    def _lasting(self, text: str, path: str) -> None:
        if self.reader.span(text, path).low <= 0:
            self._fail(path, f"{text!r} never ends; write a time that passes, such as 30s")

    def _refuse(self, findings: Iterable[Finding], prefix: str = "", paths: tuple[tuple[str, str], ...] = ()) -> None:
        for finding in findings:
            if finding.severity is Severity.ERROR or finding.message.startswith("is not a field"):
                path = finding.path
                for written, here in paths:
                    if path.startswith(written):
                        path = f"{prefix}.{here}{path.removeprefix(written)}"
                        break
                value = f" ({finding.value})" if finding.value else ""
                self._fail(path, f"{finding.message}{value}{'; ' + finding.remedy if finding.remedy else ''}")

    # ------------------------------------------------------------ sections

    def _check_types(self) -> None:
        kinds = self.wire.catalogue
        for index, kind in enumerate(() if isinstance(kinds, str) else kinds):
            path = f"catalogue[{index}]"
            self._at_least(kind.cpu, 1, f"{path}.cpu")
            self._quantity(kind.memory, "memory", f"{path}.memory")
            self._at_least(kind.price, 0, f"{path}.price")
            self._at_least(kind.pods, 1, f"{path}.pods")
            if kind.spot is not None:
                self._at_least(kind.spot, 0, f"{path}.spot")

    def _check_pool(self, pool: PoolSection, path: str) -> None:
        self._refuse(validate_manifest(_manifest(pool)), path, _POOL_PATHS)

    def _check_nodes(self) -> None:
        kinds = self.wire.catalogue
        known = None if isinstance(kinds, str) else [kind.name for kind in kinds]
        for index, group in enumerate(self.wire.nodes):
            path = f"nodes[{index}]"
            if group.pool not in self.pools:
                self._fail(f"{path}.pool", f"there is no pool {group.pool!r}; write one of: {', '.join(self.pools)}")
            if known is not None and group.type not in known:
                self._fail(f"{path}.type", f"there is no type {group.type!r}; write one of: {', '.join(known)}")
            if group.capacity_type not in (names.ON_DEMAND, names.SPOT, names.RESERVED):
                problem = f"{group.capacity_type!r} is not a capacity type; write on-demand, spot or reserved"
                self._fail(f"{path}.capacityType", problem)
            self._at_least(group.count, 0, f"{path}.count")
            self.reader.span(group.age, f"{path}.age")

    def _check_cloud(self) -> None:
        cloud = self.wire.cloud
        for name in ("create", "register", "ready", "shutdown"):
            self.reader.span(getattr(cloud, name), f"cloud.{name}")
        self._at_least(cloud.interruptions_per_hour, 0, "cloud.interruptionsPerHour")
        if cloud.spot_prices is not None:
            self._lasting(cloud.spot_prices.every, "cloud.spotPrices.every")
            self._at_least(cloud.spot_prices.sigma, 0, "cloud.spotPrices.sigma")

    def _check_workload(self, work: WorkloadSection, path: str) -> None:
        if work.kind not in _KINDS:
            self._fail(f"{path}.kind", f"{work.kind!r} is not a kind of workload; write one of: {', '.join(_KINDS)}")
        for name in ("start", "stop", "duration"):
            text = getattr(work, name)
            if text is not None:
                self.reader.span(text, f"{path}.{name}")
        if work.every is not None:
            self._lasting(work.every, f"{path}.every")
        if work.kind == "Job" and work.duration is None:
            self._fail(path, "a Job needs a `duration`; write how long a pod works, such as 2m-10m")
        self._at_least(work.count, 0, f"{path}.count")
        self._at_least(work.grace, 0, f"{path}.grace")
        self._at_least(work.priority or 0, -_INT32, f"{path}.priority", _INT32 - 1)
        for resource in ("cpu", "memory"):
            for place, text in _options(getattr(work, resource), f"{path}.{resource}", self.reader):
                self._quantity(text, resource, place)
        for key in ("replicas", "batch"):
            for place, number in _options(getattr(work, key), f"{path}.{key}", self.reader):
                self._at_least(number, 0, place)
        for index, entry in enumerate(work.spread):
            self._at_least(entry.skew, 1, f"{path}.spread[{index}].skew")
        if work.pdb is not None:
            self._check_pdb(work.pdb, f"{path}.pdb")
        if work.curve is not None:
            self._check_curve(work.curve, f"{path}.curve")

    def _check_pdb(self, pdb: PdbSection, path: str) -> None:
        for key, amount in (("minAvailable", pdb.min_available), ("maxUnavailable", pdb.max_unavailable)):
            if amount is not None and not str(amount).removesuffix("%").isdecimal():
                self._fail(f"{path}.{key}", f"{amount!r} is not an amount; write a number such as 1, or a percentage")

    def _check_curve(self, curve: CurveSection, path: str) -> None:
        self._at_least(curve.low, 0, f"{path}.low")
        self._at_least(curve.high, curve.low, f"{path}.high")
        self._at_least(curve.noise, 0, f"{path}.noise")
        self.reader.span(curve.peak, f"{path}.peak")
        self._lasting(curve.every, f"{path}.every")
        self._lasting(curve.period, f"{path}.period")

    # ------------------------------------------------------------ steps

    def _check_step(self, step: StepSection, path: str) -> None:
        if (step.at is None) == (step.every is None):
            self._fail(path, "a step needs either `at` or `every`; write `at: 20m`")
        for name, text in (("at", step.at), ("from", step.from_), ("until", step.until)):
            if text is not None:
                self.reader.span(text, f"{path}.{name}")
        if step.every is not None:
            self._lasting(step.every, f"{path}.every")
        given = [name for name in _ACTIONS if getattr(step, name) is not None]
        if len(given) != 1:
            words = ", ".join("outOfStock" if name == "out_of_stock" else name for name in _ACTIONS)
            self._fail(path, f"a step does one thing; write one of: {words}")
        self._check_action(step, path)

    def _check_action(self, step: StepSection, path: str) -> None:
        for name, replicas in (step.scale or {}).items():
            self._at_least(replicas, 0, f"{path}.scale.{name}")
        if step.image is not None:
            self.reader.span(step.image.within, f"{path}.image.within")
        if step.out_of_stock is not None:
            self.reader.span(step.out_of_stock.for_, f"{path}.outOfStock.for")
        if step.price is not None:
            self._at_least(step.price.price, 0, f"{path}.price.price")
        if step.kill is not None:
            self._at_least(step.kill.nodes, 1, f"{path}.kill.nodes")
        if step.sick is not None:
            self._check_sick_step(step.sick, f"{path}.sick")
        if step.pool is not None:
            self._check_pool_step(step.pool, f"{path}.pool")

    def _check_sick_step(self, step: SickStep, path: str) -> None:
        self._at_least(step.nodes, 1, f"{path}.nodes")
        self._lasting(step.for_, f"{path}.for")
        if step.status not in _STATUSES:
            known = ", ".join(_STATUSES)
            self._fail(f"{path}.status", f"{step.status!r} is not a status of a condition; write one of: {known}")
        if step.pool and step.pool not in self.pools:
            self._fail(f"{path}.pool", f"there is no pool {step.pool!r}; write one of: {', '.join(self.pools)}")

    def _check_pool_step(self, step: PoolStep, path: str) -> None:
        if step.name not in self.pools:
            self._fail(f"{path}.name", f"there is no pool {step.name!r}; write one of: {', '.join(self.pools)}")
        if not step.disruption and not step.labels:
            self._fail(path, "nothing changes; write `disruption: {...}`, or `labels: {...}` of its template")
        self.reader.span(step.within, f"{path}.within")
        self._refuse(disruption_findings(step.disruption, f"{path}.disruption"))


def _options(given: Any, path: str, reader: FieldReader) -> Iterator[tuple[str, Any]]:
    """Yield a value, or each of those that one is drawn from, with its path."""
    if not isinstance(given, tuple):
        yield path, given
        return
    if not given:
        raise reader.fail(path, "the list is empty; write at least one value")
    yield from ((f"{path}[{index}]", value) for index, value in enumerate(given))


def _manifest(pool: PoolSection) -> dict[str, Any]:
    """Return the section as the NodePool that it means."""
    plain = msgspec.json.decode(msgspec.json.encode(pool))
    template: dict[str, Any] = {"nodeClassRef": {"group": "sim", "kind": "SimNodeClass", "name": "default"}}
    template["requirements"] = plain["requirements"]
    for key in ("taints", "startupTaints"):
        if plain[key]:
            template[key] = plain[key]
    for key in ("expireAfter", "terminationGracePeriod"):
        if plain[key] is not None:
            template[key] = plain[key]
    spec: dict[str, Any] = {"template": {"metadata": {"labels": plain["labels"]}, "spec": template}}
    for key in ("disruption", "limits", "weight"):
        if plain[key]:
            spec[key] = plain[key]
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": pool.name}, "spec": spec}
