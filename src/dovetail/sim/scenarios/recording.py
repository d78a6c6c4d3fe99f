"""Replays a recording of the real Karpenter in the simulated cluster, and compares the two courses.

A recording (JSON, plain or .gz) holds the NodePool and Deployments as applied, every scale step with its second, and
the result: NodeClaims, commands, pods every two seconds. The simulator gets the same objects and steps under a policy,
and from the recording only when the first pods came and when its nodes became schedulable. `python -m
dovetail.sim.scenarios.recording FILE --types TYPES` prints the comparison. The instance types are in the form that
Karpenter's kwok provider reads.
"""

import argparse
import gzip
import sys
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, Final

import msgspec

from dovetail.api.reading.decode import unreadable_quantity
from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.cluster import cluster_of
from dovetail.model.money import parse_money
from dovetail.model.objects import DisruptionSpec, NodePool, ObjectMeta, Pod, PodTemplate, SelectorRequirement
from dovetail.model.quantity import resource_amount
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.model.timing.duration import parse_nillable
from dovetail.sim.checks.watch import Watch
from dovetail.sim.ledger import Result, RunLedger
from dovetail.sim.scenarios.scenario import ScenarioError
from dovetail.sim.world.clock import SECOND, seconds
from dovetail.sim.world.cloud import CloudTimes
from dovetail.sim.world.workloads import Workload
from dovetail.sim.world.world import World, WorldConfig, karpenter_settings, managed

APPLIED_BEFORE: Final = 15 * SECOND
_KWOK_CPU: Final = 100
_KWOK_MEMORY: Final = 10 * 1024 * 1024
# The recordings' kubelets make nodes and pods ready within a second or two, and pods stop as fast. Karpenter's loop
# looks again a second after a launch: whether the new node is initialized by then is chance.
TIMES: Final = CloudTimes(
    create=seconds(0.05, 0.15), register=seconds(0.3, 0.7), ready=seconds(0.2, 0.9), shutdown=seconds(0.1)
)
# Nodes that waited for the node controller are released one after the other, about a second for all; the scheduler
# takes some hundred pods a second meanwhile, so that the first nodes are filled before the last are there.
RELEASED: Final = seconds(0.0, 0.15)
PACE: Final = SECOND // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What was applied, what was done to it, and what came of it."""

    about: str
    pool: NodePool
    deployments: tuple[dict[str, Any], ...]
    scale: tuple[tuple[float, str, int], ...]
    claims: tuple[dict[str, Any], ...]
    commands: tuple[dict[str, Any], ...]
    pods: tuple[dict[str, Any], ...]

    @property
    def seconds(self) -> float:
        """Return how long it lasts."""
        return float(self.pods[-1]["t"]) if self.pods else 0.0

    @property
    def schedulable(self) -> float:
        """Return when the first nodes took pods: from then on the two courses can be compared."""
        first = next((entry for entry in self.pods if entry["nodes"] > 0), None)
        return float(first["t"]) if first is not None else 0.0

    def arrivals(self) -> list[float]:
        """Return when each deployment's pods were there, in the order in which they were applied, by pod counts.

        Between two looks they came evenly. Before the first look and after the last one that found all the pace is
        that of the looks between: the controllers create pods at a steady rate.
        """
        wanted = sum(int(deployment["spec"].get("replicas", 1)) for deployment in self.deployments)
        growing: list[tuple[float, int]] = []
        for entry in self.pods:
            if not growing or entry["count"] > growing[-1][1]:
                growing.append((float(entry["t"]), int(entry["count"])))
            if entry["count"] >= wanted:  # later growth is that of steps and of pods that are moved
                break
        if len(growing) > 1:
            steady = growing[:-1] if len(growing) > 2 else growing
            (t0, first), (t1, second) = steady[0], steady[-1]
            pace = (second - first) / (t1 - t0)
            growing[-1] = (min(growing[-1][0], t1 + (growing[-1][1] - second) / pace), growing[-1][1])
            growing.insert(0, (t0 - first / pace, 0))
        times, total = [], 0
        for deployment in self.deployments:
            total += int(deployment["spec"].get("replicas", 1))
            times.append(_when(growing, total))
        return times

    def nodes_at(self, second: float) -> int:
        """Return how many NodeClaims there were."""
        return sum(entry["seen"] <= second and entry.get("gone", float("inf")) > second for entry in self.claims)


def _when(growing: list[tuple[float, int]], total: int) -> float:
    """Return when a count was reached, evenly between two looks."""
    for (t0, low), (t1, high) in pairwise(growing):
        if low < total <= high:
            return t0 + (t1 - t0) * (total - low) / (high - low)
    return growing[-1][0] if growing else 0.0


def _read(path: Path) -> Any:
    try:
        raw = path.read_bytes()
        return msgspec.json.decode(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError):
        raise ScenarioError(f"{path}: can't be read; write the path of a JSON file, plain or .gz") from None


_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
_Second = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class _Step(msgspec.Struct):
    t: _Second
    deployment: str
    replicas: _Count


class _NamedMeta(msgspec.Struct):
    name: str
    namespace: str = "default"


class _DeploymentSpec(msgspec.Struct):
    template: PodTemplate
    replicas: _Count = 1


class _Deployment(msgspec.Struct):
    metadata: _NamedMeta
    spec: _DeploymentSpec


class _Claim(msgspec.Struct, rename="camel"):
    seen: _Second
    gone: _Second = 0.0
    type: str = ""
    zone: str = ""
    capacity_type: str = ""


class _Command(msgspec.Struct):
    decision: str
    pods: _Count


class _Look(msgspec.Struct):
    t: _Second
    nodes: _Count
    count: _Count


class _File(msgspec.Struct, rename="camel"):
    """The shape of the file: what is not as written here is refused before anything is simulated."""

    node_pool: NodePool
    deployments: list[_Deployment]
    scale: list[_Step]
    node_claims: list[_Claim]
    commands: list[_Command]
    pods: list[_Look]
    about: str = ""


def load_recording(path: Path) -> Recording:
    """Return a recording from its file."""
    tree = _read(path)
    try:
        file = msgspec.convert(tree, _File)
        known = {deployment.metadata.name for deployment in file.deployments}
        strange = sorted({step.deployment for step in file.scale} - known)
        if strange:
            raise ValueError(f"scale names a deployment that it does not have: {strange[0][:60]!r}")
        if any(later.t < look.t for look, later in pairwise(file.pods)):
            raise ValueError("pods are not in the order of time")
        _check_texts(file)
    except (ValueError, RecursionError) as error:
        raise ScenarioError(
            f"{path}: it is not a recording ({error}); write one with nodePool, deployments, scale"
        ) from None
    return Recording(
        about=file.about,
        pool=file.node_pool,
        deployments=tuple(tree["deployments"]),
        scale=tuple((step.t, step.deployment, step.replicas) for step in file.scale),
        claims=tuple(tree["nodeClaims"]),
        commands=tuple(tree["commands"]),
        pods=tuple(tree["pods"]),
    )


def _check_texts(file: _File) -> None:
    """Raise for an amount or a duration that the simulation could not read."""
    pods = [
        Pod(metadata=ObjectMeta(name=str(number)), spec=deployment.spec.template.spec)
        for number, deployment in enumerate(file.deployments)
    ]
    unreadable = unreadable_quantity(cluster_of(pods))
    if unreadable is not None:
        raise ValueError(unreadable)
    spec = file.node_pool.spec.template.spec
    for text in (spec.expire_after, spec.termination_grace_period):
        if text is not None:
            parse_nillable(str(text))


class _Need(msgspec.Struct):
    key: str
    values: tuple[str, ...]


class _KwokOffering(msgspec.Struct):
    requirements: tuple[_Need, ...] = msgspec.field(name="Requirements")
    price: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = msgspec.field(name="Price")


class _KwokType(msgspec.Struct, rename="camel"):
    name: str
    architecture: str
    operating_systems: tuple[str, ...]
    resources: dict[str, str | int]
    offerings: tuple[_KwokOffering, ...]


def load_kwok_types(path: Path) -> Catalogue:
    """Read instance types as Karpenter's kwok provider does."""
    try:
        found = msgspec.convert(_read(path), list[_KwokType])
        return Catalogue(instance_types=tuple(_kind(entry) for entry in found), source=str(path.name))
    except (LookupError, ValueError, RecursionError) as error:
        raise ScenarioError(
            f"{path}: these are not kwok instance types ({error}); write a list with name, offerings"
        ) from None


def _kind(entry: _KwokType) -> InstanceType:
    offerings = tuple(_offering(offer) for offer in entry.offerings)
    cpu, memory = entry.resources["cpu"], entry.resources["memory"]
    labels = {
        names.INSTANCE_TYPE: (entry.name,),
        names.ARCH: (entry.architecture,),
        names.OS: entry.operating_systems,
        names.ZONE: tuple(dict.fromkeys(offering.zone for offering in offerings)),
        names.CAPACITY_TYPE: tuple(dict.fromkeys(offering.capacity_type for offering in offerings)),
        "karpenter.kwok.sh/instance-size": (str(cpu),),
        "karpenter.kwok.sh/instance-family": (entry.name.partition("-")[0],),
        "karpenter.kwok.sh/instance-cpu": (str(cpu),),
        "karpenter.kwok.sh/instance-memory": (str(memory),),
    }
    return InstanceType(
        name=entry.name,
        requirements=tuple(
            SelectorRequirement(key=key, operator="In", values=values) for key, values in labels.items()
        ),
        capacity={name: resource_amount(name, text) for name, text in {"pods": "110", **entry.resources}.items()},
        overhead={"cpu": _KWOK_CPU, "memory": _KWOK_MEMORY},
        offerings=offerings,
    )


def _offering(entry: _KwokOffering) -> Offering:
    given = {need.key: need.values[0] for need in entry.requirements}
    return Offering(
        capacity_type=given[names.CAPACITY_TYPE],
        zone=given[names.ZONE],
        price=parse_money(Decimal(repr(entry.price))),
        price_float=entry.price,
    )


# ---------------------------------------------------------------- playing


def replay(
    recording: Recording,
    catalogue: Catalogue,
    settings: Settings = KARPENTER_1_15,
    disruption: dict[str, Any] | None = None,
    seed: int = 0,
    name: str = "karpenter-1.15",
) -> Result:
    """Return the same objects and steps in the simulated cluster, under Karpenter's rules or others."""
    world = World(WorldConfig(catalogue=catalogue, seed=seed, times=TIMES))
    pool = recording.pool
    if disruption:
        written = {**msgspec.to_builtins(pool.spec.disruption), **disruption}
        spec = msgspec.structs.replace(pool.spec, disruption=msgspec.convert(written, DisruptionSpec))
        pool = msgspec.structs.replace(pool, spec=spec)
    world.add_pool(pool if settings.rules.plays_karpenter else managed(pool))
    world.karpenter.ready_from = APPLIED_BEFORE + int(recording.schedulable * SECOND)
    world.karpenter.ready_gap, world.scheduler.pace = RELEASED, PACE
    for deployment, arrives in zip(recording.deployments, recording.arrivals(), strict=True):
        work = _workload(deployment)
        world.at(APPLIED_BEFORE + int(arrives * SECOND), partial(world.workloads.add, work))
    for second, deployment_name, replicas in recording.scale:
        world.at(APPLIED_BEFORE + int(second * SECOND), _scale(world, deployment_name, replicas))
    watch, ledger = Watch(world), RunLedger(world, step=10 * SECOND)
    # The phase of the loop's polls in a recording is unknown: it was running before.
    world.run(APPLIED_BEFORE - world.dice.stream("phase").randrange(settings.poll_interval))
    if settings.rules.plays_karpenter:
        settings = replace(settings, pools=karpenter_settings(world).pools)
    host = world.add_engine(settings, name=settings.profile.value)
    watch.follow(host)
    ledger.follow(host)
    host.start()
    world.run(APPLIED_BEFORE)
    ledger.begin()
    world.run(APPLIED_BEFORE + int(recording.seconds * SECOND))
    return ledger.result(name, tuple(watch.violations))


def _workload(deployment: dict[str, Any]) -> Workload:
    template = msgspec.convert(deployment["spec"]["template"], PodTemplate)
    return Workload(
        kind="ReplicaSet",
        name=deployment["metadata"]["name"],
        namespace=deployment["metadata"].get("namespace", "default"),
        replicas=int(deployment["spec"].get("replicas", 1)),
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        spec=template.spec,
        start=seconds(1, 2),
        stop=seconds(1, 2),
    )


def _scale(world: World, deployment: str, replicas: int) -> Callable[[], None]:
    def scale() -> None:
        key = next(key for key in world.workloads.keys("ReplicaSet") if key.endswith(f"/{deployment}"))
        world.scale("ReplicaSet", key, replicas)

    return scale


# ---------------------------------------------------------------- comparing


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far apart the two courses are: nodes minute by minute, commands, pods moved, kinds of action, short lives."""

    minutes: tuple[int, ...]
    recorded: tuple[int, ...]
    simulated: tuple[int, ...]
    commands: tuple[int, int]
    pods: tuple[int, int]
    deletes: tuple[int, int]
    replaces: tuple[int, int]
    short_lives: tuple[int, int]


def agreement(recording: Recording, result: Result, after_minutes: int = 5) -> Agreement:
    """Compare from the given minute on."""
    minutes = tuple(range(after_minutes, int(recording.seconds // 60) + 1))
    simulated = tuple(
        sum(life.started <= 60 * m and (life.ended is None or life.ended > 60 * m) for life in result.lives)
        for m in minutes
    )
    kinds = [entry["decision"] for entry in recording.commands]
    short = sum("gone" in entry and entry["gone"] - entry["seen"] < 15 * 60 for entry in recording.claims)
    return Agreement(
        minutes=minutes,
        recorded=tuple(recording.nodes_at(60 * minute) for minute in minutes),
        simulated=simulated,
        commands=(len(recording.commands), len(result.commands)),
        pods=(sum(entry["pods"] for entry in recording.commands), sum(entry.pods for entry in result.commands)),
        deletes=(kinds.count("delete"), sum(entry.replacements == 0 for entry in result.commands)),
        replaces=(kinds.count("replace"), sum(entry.replacements > 0 for entry in result.commands)),
        short_lives=(short, result.short_lived_nodes),
    )


POLICIES: Final[tuple[tuple[str, Settings, dict[str, Any] | None], ...]] = (
    ("karpenter-1.15", KARPENTER_1_15, None),
    ("grace-period-30m", DOVETAIL, {"consolidationGracePeriod": "30m", "consolidationSavingsThreshold": 0}),
    ("grace-period-5m", DOVETAIL, {"consolidationGracePeriod": "5m", "consolidationSavingsThreshold": 0}),
    ("savings-threshold", DOVETAIL, {"consolidationSavingsThreshold": 0.01}),
    ("both-5m", DOVETAIL, {"consolidationGracePeriod": "5m", "consolidationSavingsThreshold": 0.01}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Several runs compared with one recording: what was recorded, and mean, minimum and maximum of the runs."""

    minutes: tuple[int, ...]
    nodes: tuple[tuple[int, float, int, int], ...]
    figures: tuple[tuple[str, int, float, int, int], ...]

    @property
    def worst(self) -> tuple[int, float]:
        """Return the minute at which the mean number of nodes differs most, and by which share of the recorded."""
        apart = [abs(mean - there) / max(1, there) for there, mean, _, _ in self.nodes]
        share = max(apart, default=0.0)
        return (self.minutes[apart.index(share)] if apart else 0), share


FIGURES: Final = (
    ("commands", "commands"),
    ("pods", "pods moved"),
    ("deletes", "deletes"),
    ("replaces", "replaces"),
    ("short_lives", "lives under 15 min"),
)


def course(found: Sequence[Agreement]) -> Course:
    """Return the mean course. One recording is one random outcome of Karpenter and the scheduler; so is each run."""
    first = found[0]
    nodes = []
    for index, there in enumerate(first.recorded):
        here = [entry.simulated[index] for entry in found]
        nodes.append((there, mean(here), min(here), max(here)))
    figures = []
    for field, name in FIGURES:
        here = [getattr(entry, field)[1] for entry in found]
        figures.append((name, getattr(first, field)[0], mean(here), min(here), max(here)))
    return Course(minutes=first.minutes, nodes=tuple(nodes), figures=tuple(figures))


def _play(recording: Recording, catalogue: Catalogue, job: tuple[int, int]) -> Result:
    name, settings, disruption = POLICIES[job[0]]
    return replay(recording, catalogue, settings, disruption, job[1], name)


def replay_all(recording: Recording, catalogue: Catalogue, seeds: Sequence[int]) -> list[list[Result]]:
    """Return every policy under every seed, on all cores; the results are those of one core."""
    jobs = [(number, seed) for number in range(len(POLICIES)) for seed in seeds]
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(partial(_play, recording, catalogue), jobs))
    return [results[at : at + len(seeds)] for at in range(0, len(results), len(seeds))]


def main(arguments: list[str] | None = None) -> int:
    """Print how the simulator and the recording agree, and what other policies would have done."""
    parser = argparse.ArgumentParser(
        prog="python -m dovetail.sim.scenarios.recording", description=__doc__.splitlines()[0]
    )
    parser.add_argument("recording", type=Path)
    parser.add_argument("--types", type=Path, required=True, help="instance types in kwok's form")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=10, help="how many runs to take the mean of (10)")
    args = parser.parse_args(arguments)
    if args.seeds < 1:
        parser.error("--seeds must be 1 or more")
    try:
        recording, catalogue = load_recording(args.recording), load_kwok_types(args.types)
    except ScenarioError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    by_policy = replay_all(recording, catalogue, range(args.seed, args.seed + args.seeds))
    for (name, settings, _), results in zip(POLICIES, by_policy, strict=True):
        if settings.rules.plays_karpenter:
            sys.stdout.write(_course_text(course([agreement(recording, result) for result in results]), args.seeds))
        sys.stdout.write(
            f"{name}: {mean(len(r.commands) for r in results):.1f} commands, "
            f"{mean(r.pods_disrupted for r in results):.1f} pods moved, "
            f"{mean(r.pods_disrupted_more_than_once for r in results):.1f} more than once, "
            f"{mean(r.short_lived_nodes for r in results):.1f} short lives, "
            f"{mean(r.node_hours for r in results):.2f} node hours, ${mean(r.cost for r in results) / 10**18:.3f}\n"
        )
    return 0


def _course_text(found: Course, seeds: int) -> str:
    lines = ["minute    " + " ".join(f"{minute:4d}" for minute in found.minutes)]
    lines.append("recorded  " + " ".join(f"{there:4d}" for there, _, _, _ in found.nodes))
    lines.append("simulated " + " ".join(f"{here:4.1f}" for _, here, _, _ in found.nodes))
    if seeds > 1:
        lines.append("  least   " + " ".join(f"{low:4d}" for _, _, low, _ in found.nodes))
        lines.append("  most    " + " ".join(f"{high:4d}" for _, _, _, high in found.nodes))
    lines += [
        f"{what}: recorded {there}, simulated {here:.1f}" + (f" ({low} to {high})" if seeds > 1 else "")
        for what, there, here, low, high in found.figures
    ]
    minute, share = found.worst
    lines.append(f"nodes, mean of {seeds} runs, differ by at most {100 * share:.0f} %, at minute {minute}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
