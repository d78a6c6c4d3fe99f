"""Reads workload traces and lets their pods come and go in a world: the column form with arrivals and departures.

A trace is CSV (plain or .gz) with at least `arrive_s`, `cpu_milli` and `mem_mib`; `depart_s` (blank: stays), `name` and
`owner` if known. Each row is a pod that exists from its arrival to its departure, and is recreated after an eviction.
What can't be read is said with file, line and what to write instead. Knows nothing of policies.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dovetail.model.objects import Container, PodSpec, ResourceRequirements
from dovetail.model.timing.duration import parse_simple
from dovetail.sim.scenarios.scenario import Scenario, ScenarioError
from dovetail.sim.scenarios.sections import TraceSection
from dovetail.sim.world.clock import SECOND, Span
from dovetail.sim.world.workloads import Workload
from dovetail.sim.world.world import World

_NEEDED = ("arrive_s", "cpu_milli", "mem_mib")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One pod of a trace: when it comes and goes (seconds; None: it stays) and what it asks for."""

    name: str
    arrive: float
    depart: float | None
    cpu_milli: int
    memory_mib: int


def read_trace(path: Path) -> Iterator[TraceRow]:
    """Yield the rows of a trace file, in its order."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        raise ScenarioError(f"{path}: can't be read; write the path of a CSV trace, plain or .gz") from None
    rows = csv.DictReader(io.StringIO(text))
    missing = [name for name in _NEEDED if name not in (rows.fieldnames or ())]
    if missing:
        raise ScenarioError(f"{path}:1: column {missing[0]} is missing; write a header with {', '.join(_NEEDED)}")
    for number, row in enumerate(rows, start=2):
        try:
            yield TraceRow(
                name=row.get("name") or f"pod-{number}",
                arrive=float(row["arrive_s"] or 0),
                depart=float(row["depart_s"]) if row.get("depart_s") else None,
                cpu_milli=int(float(row["cpu_milli"] or 0)),
                memory_mib=int(float(row["mem_mib"] or 0)),
            )
        except (TypeError, ValueError):
            raise ScenarioError(
                f"{path}:{number}: this row is not readable; write numbers in {', '.join(_NEEDED)}"
            ) from None


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
    skip = parse_simple(section.skip, "smhd") / SECOND
    end = (scenario.warm_up + scenario.until) / SECOND
    count = 0
    for row in read_trace(trace_path(scenario, section)):
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
