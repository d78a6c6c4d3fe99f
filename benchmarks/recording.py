"""What recording costs: a stretch of a simulated cluster through the recorder, at 500 and 5,000 nodes.

`python -m benchmarks.recording` writes docs/benchmarks/recording.json and the table in docs/recordings.md; a test
compares the two. With NODES:MINUTES it only prints that row. The load is the one of `benchmarks.simulator`, with every
change as its watches would deliver it. Each hourly file begins with everything that is there, so a day is 24 times that
and 24 hours of changes. CPU is that of queueing, folding, packing and writing; the watches themselves the controller
needs anyway.
"""

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.clusters import measured
from benchmarks.simulator import _LIKE, _SCENARIO
from dovetail.lifecycle.messages import ObjectObserved, ObjectVanished
from dovetail.live.recorder import ClusterRecorder, new_fold
from dovetail.sim.run import add_controllers
from dovetail.sim.scenarios.scenario import parse_scenario
from dovetail.sim.scenarios.stage import Stage
from dovetail.sim.world.clock import SECOND
from dovetail.sim.world.store import Change

ROOT: Final = Path(__file__).resolve().parents[1]
OUT: Final = ROOT / "docs" / "benchmarks" / "recording.json"
PAGE: Final = ROOT / "docs" / "recordings.md"
MARK: Final = "<!-- recording.json -->\n"
END: Final = "<!-- end -->"
SIZES: Final = ("500:60", "5000:10")
_HOUR: Final = 3600


def one(size: str) -> dict[str, Any]:
    """Record a cluster of so many nodes for so many minutes, which must lie within one hour."""
    nodes, minutes = (int(part) for part in size.split(":"))
    text = _SCENARIO.format(nodes=nodes, pods=nodes * 16, services=nodes * 16 // 47, workload=_LIKE)
    scenario = parse_scenario(text, "benchmark")
    policy = scenario.policies[0]
    world = Stage(scenario, policy, 0).build()
    world.run(scenario.warm_up)
    _, hosts = add_controllers(world, policy)
    for host in hosts:
        host.start()
    begins = scenario.warm_up // SECOND
    if begins + 60 * minutes > _HOUR:  # a file ends with the hour
        begins = _HOUR
        world.run(begins * SECOND)
    waiting: list[Change] = list(world.store.history())
    world.store.listen(waiting.append)
    with TemporaryDirectory() as folder:
        recorder = ClusterRecorder(
            folder=Path(folder), fold=new_fold("bench", world.cloud.catalogue), clock=world.clock.instant
        )
        listing, changes, spent = _record(recorder, waiting), 0, 0.0
        listed = recorder.bytes_written
        for second in range(begins + 1, begins + 60 * minutes):
            world.run(second * SECOND)
            changes += len(waiting)
            spent += _record(recorder, waiting)
        begin = time.process_time()
        recorder.finish()
        spent += time.process_time() - begin
        an_hour = 60 / minutes
        return {
            "size": size,
            "nodes": len(world.store.nodes),
            "pods": len(world.store.pods),
            "changes": round(changes * an_hour),
            "lines": recorder.lines,
            "files": recorder.files,
            "megabytesADay": round((listed + (recorder.bytes_written - listed) * an_hour) * 24 / 1e6, 1),
            "seconds": round(listing + spent, 2),
            "cpuShare": round((listing + spent * an_hour) / _HOUR, 5),
        }


def _record(recorder: ClusterRecorder, waiting: list[Change]) -> float:
    """Hand on what has changed, write it, and return the CPU seconds that this took."""
    begin = time.process_time()
    for change in waiting:
        if change.new is not None:
            recorder.take(ObjectObserved(object=change.new))
        else:
            namespace, _, name = change.key.rpartition("/")
            recorder.take(ObjectVanished(kind=change.kind, namespace=namespace, name=name))
    waiting.clear()
    recorder._write(recorder._next_piece())
    while recorder._queue:
        recorder._write(recorder._next_piece())
    return time.process_time() - begin


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table as Markdown."""
    lines = ["| nodes | pods | changes an hour | a day on disk | CPU |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['nodes']:,} | {row['pods']:,} | {row['changes']:,} | {row['megabytesADay']:.1f} MB "
        f"| {100 * row['cpuShare']:.3f} % of a core |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, each size in a process of its own, and write figures and table."""
    rows = [measured("benchmarks.recording", size, repeat=1) for size in SIZES]
    document = {"benchmark": "recording", "date": f"{datetime.now(UTC):%Y-%m-%d}", "rows": rows}
    OUT.write_text(json.dumps(document, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(MARK)
    PAGE.write_text(before + MARK + table(rows) + END + rest.partition(END)[2])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(one(sys.argv[1])))
    else:
        main()
