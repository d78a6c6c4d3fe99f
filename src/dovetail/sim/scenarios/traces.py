"""Reads workload traces and lets their pods come and go in a world.

A trace is CSV (plain or .gz) in one of two forms. Pods: at least `arrive_s` (blank: there before), `cpu_milli` and
`mem_mib`; `depart_s` (blank: stays), `name`, `owner` and `gpu` if known. Sizes of Deployments: `t_s`, `owner`,
`replicas`, `cpu_milli` and `mem_mib`; the last pods come and go with the size. Each pod exists from its arrival to its
departure, and is recreated after an eviction. Pods with GPUs are left out: the catalogues have no such machines.
What can't be read is said with file, line and what to write instead. Knows nothing of policies.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

from dovetail.model.objects import Container, PodSpec, ResourceRequirements
from dovetail.model.timing.duration import parse_simple
from dovetail.sim.scenarios.scenario import Scenario, ScenarioError
from dovetail.sim.scenarios.sections import TraceSection
from dovetail.sim.world.clock import SECOND, Span
from dovetail.sim.world.workloads import Workload
from dovetail.sim.world.world import World

_NEEDED: Final = ("arrive_s", "cpu_milli", "mem_mib")
_SIZES: Final = ("t_s", "owner", "replicas", "cpu_milli", "mem_mib")
_AUTO: Final = "auto"
_HOUR_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One pod of a trace: when it comes and goes (seconds; None: it stays) and what it asks for."""

    name: str
    arrive: float
    depart: float | None
    cpu_milli: int
    memory_mib: int


def read_trace(path: Path) -> Iterator[TraceRow]:
    """Yield the pods of a trace file, in its order."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        raise ScenarioError(f"{path}: can't be read; write the path of a CSV trace, plain or .gz") from None
    rows = csv.DictReader(io.StringIO(text))
    names = rows.fieldnames or ()
    needed = _SIZES if _SIZES[0] in names else _NEEDED
    missing = [name for name in needed if name not in names]
    if missing:
        raise ScenarioError(f"{path}:1: column {missing[0]} is missing; write a header with {', '.join(needed)}")
    yield from _pods_of_sizes(path, rows) if needed is _SIZES else _pods(path, rows)


def _pods(path: Path, rows: Iterable[dict[str, str]]) -> Iterator[TraceRow]:
    for number, row in enumerate(rows, start=2):
        try:
            if float(row.get("gpu") or 0) > 0:
                continue
            yield TraceRow(
                name=row.get("name") or f"pod-{number}",
                arrive=float(row["arrive_s"] or 0),
                depart=float(row["depart_s"]) if row.get("depart_s") else None,
                cpu_milli=int(float(row["cpu_milli"] or 0)),
                memory_mib=int(float(row["mem_mib"] or 0)),
            )
        except (TypeError, ValueError):
            raise _unreadable(path, number, _NEEDED) from None


def _pods_of_sizes(path: Path, rows: Iterable[dict[str, str]]) -> Iterator[TraceRow]:
    """Yield a pod for every replica that a Deployment ever had, in the order in which they came."""
    found: list[TraceRow] = []
    running: dict[str, list[int]] = {}
    for number, row in enumerate(rows, start=2):
        try:
            at, wanted = float(row["t_s"]), int(float(row["replicas"]))
            needs = int(float(row["cpu_milli"] or 0)), int(float(row["mem_mib"] or 0))
        except (TypeError, ValueError):
            raise _unreadable(path, number, _SIZES) from None
        own = running.setdefault(row["owner"], [])
        while len(own) > max(0, wanted):
            last = own.pop()
            found[last] = replace(found[last], depart=at)
        while len(own) < wanted:
            name = f"{row['owner']}-{len(own)}"
            own.append(len(found))
            found.append(TraceRow(name=name, arrive=at, depart=None, cpu_milli=needs[0], memory_mib=needs[1]))
    yield from found


def _unreadable(path: Path, number: int, needed: Sequence[str]) -> ScenarioError:
    return ScenarioError(f"{path}:{number}: this row is not readable; write numbers in {', '.join(needed)}")


def _taken(rows: Iterable[TraceRow], share: float) -> list[TraceRow]:
    """Return the share of the pods that is taken, by a hash of their names."""
    if share >= 1:
        return list(rows)
    bound = share * 2**32
    return [row for row in rows if int.from_bytes(blake2b(row.name.encode(), digest_size=4).digest()) < bound]


def _skipped(section: TraceSection, rows: Sequence[TraceRow]) -> float:
    """Return how many seconds of the trace are left out at its beginning."""
    if section.skip == _AUTO:
        first = min((row.arrive for row in rows), default=0.0)
        return first // _HOUR_SECONDS * _HOUR_SECONDS
    return parse_simple(section.skip, "smhd") / SECOND


def trace_path(scenario: Scenario, section: TraceSection) -> Path:
    """Return where the trace is: beside the scenario's file, or as given."""
    if not section.file:
        raise ScenarioError(
            f"{scenario.source}: trace: no file is given; write `file: pods.csv.gz` or use --trace FILE"
        )
    path = Path(section.file)
    folder = scenario.folder
    return path if path.is_absolute() or folder is None else folder / path


def add_trace(world: World, scenario: Scenario, section: TraceSection) -> int:
    """Schedule all arrivals and departures; return how many pods there are."""
    rows = _taken(read_trace(trace_path(scenario, section)), section.share)
    skip = _skipped(section, rows)
    end = (scenario.warm_up + scenario.until) / SECOND
    count = 0
    for row in rows:
        arrive = max(0.0, (row.arrive - skip) / section.speed)
        depart = None if row.depart is None else (row.depart - skip) / section.speed
        if (depart is not None and depart <= arrive) or arrive > end:
            continue
        count += 1
        work = Workload(
            kind="ReplicaSet",
            name=f"{_plain(row.name)}-{count:06d}",
            namespace=section.namespace,
            replicas=1,
            labels={"trace": f"{count}"},
            spec=PodSpec(
                termination_grace_period_seconds=30,
                containers=(
                    Container(
                        name="main",
                        resources=ResourceRequirements(
                            requests={
                                "cpu": f"{max(1, int(row.cpu_milli * section.cpu_scale))}m",
                                "memory": f"{max(1, int(row.memory_mib * section.memory_scale))}Mi",
                            }
                        ),
                    ),
                ),
            ),
            start=Span(3 * SECOND, 8 * SECOND),
            stop=Span(SECOND, 3 * SECOND),
        )
        world.clock.at(int(arrive * SECOND), _arrive, world, work)
        if depart is not None and depart <= end:
            world.clock.at(int(depart * SECOND), _depart, world, work)
        if section.limit and count >= section.limit:
            break
    return count


def _arrive(world: World, work: Workload) -> None:
    world.outside("a pod arrives")
    world.workloads.add(work)


def _depart(world: World, work: Workload) -> None:
    world.outside("a pod leaves")
    world.workloads.remove("ReplicaSet", work.key)


def _plain(name: str) -> str:
    kept = "".join(letter if letter.isalnum() or letter == "-" else "-" for letter in name.lower())
    return kept.strip("-")[:40] or "pod"
