"""How well the simulated Karpenter agrees with the real one: every committed recording replayed, and its table.

`python -m benchmarks.calibration` writes docs/benchmarks/calibration.json and the table in docs/recordings.md;
a test compares the two. Nodes are compared minute by minute from the sixth on, with the mean of the seeds; what two
recordings of the same course differ by stands beside them, because the real Karpenter is random, too.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Any, Final

from dovetail.api.catalogue import load_catalogue
from dovetail.recordings.read import ClusterRecording, load_cluster_recording
from dovetail.sim.ledger import Result
from dovetail.sim.recorded import Reality, play_recorded, policy_of_today

ROOT: Final = Path(__file__).resolve().parents[1]
OUT: Final = ROOT / "docs" / "benchmarks" / "calibration.json"
PAGE: Final = ROOT / "docs" / "recordings.md"
DATA: Final = ROOT / "tests" / "recordings" / "data"
COURSES: Final = {"off-peak": 8, "off-peak-2": 4, "day-night": 4, "bursts": 8, "roll": 8}
"""The recordings, and on how many seeds each is replayed: more where chance decides more."""
TWICE: Final = ("off-peak", "off-peak-2")
"""Two recordings of the same course."""
MARK: Final = "<!-- calibration.json -->\n"
END: Final = "<!-- end -->"
FIRST_MINUTE: Final = 6
CLOSE: Final = 0.10


def measured() -> list[dict[str, Any]]:
    """Return a row for each recording."""
    catalogue = load_catalogue(DATA / "kwok-types.json.gz")
    rows = []
    for name, seeds in COURSES.items():
        recording = load_cluster_recording(DATA / name)
        played = play_recorded(recording, catalogue, (policy_of_today(recording),), seeds)
        found = played.calibration
        real, simulated = _nodes(recording), _simulated(recording, played.results[0])
        row = {
            "recording": name,
            "seeds": seeds,
            "recorded": dict(found.real),
            "simulated": dict(found.simulated),
            "error": found.error,
            "range": {
                "podsDisrupted": _range([float(each.pods_disrupted) for each in played.results[0]]),
                "nodeHours": _range([each.node_hours for each in played.results[0]]),
            },
            "minutes": len(real),
            "minutesWithin": sum(_close(here, there) for here, there in zip(simulated, real, strict=True)),
            "minutesWithinOneNode": sum(
                _close(here, there) or abs(here - there) <= 1 for here, there in zip(simulated, real, strict=True)
            ),
        }
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def _range(found: Sequence[float]) -> list[float]:
    return [round(min(found), 2), round(max(found), 2)]


def between_recordings() -> dict[str, int]:
    """Return at how many minutes two recordings of the same course agree with each other."""
    first, second = (_nodes(load_cluster_recording(DATA / name)) for name in TWICE)
    pairs = list(zip(first, second, strict=False))
    return {"minutes": len(pairs), "minutesWithin": sum(_close(here, there) for here, there in pairs)}


def _minutes(recording: ClusterRecording) -> range:
    return range(FIRST_MINUTE, int((recording.ends - recording.begins).total_seconds() // 60) + 1)


def _nodes(recording: ClusterRecording) -> list[int]:
    reality = Reality(recording=recording)
    return [reality.nodes_at(recording.begins + timedelta(minutes=minute)) for minute in _minutes(recording)]


def _simulated(recording: ClusterRecording, results: Sequence[Result]) -> list[float]:
    return [mean(_nodes_of(result, 60 * minute) for result in results) for minute in _minutes(recording)]


def _nodes_of(result: Result, second: float) -> int:
    """Return how many machines ran in a simulation, at the last sample before that second."""
    series = result.series
    last = max(at for at, sampled in enumerate(series.seconds) if sampled <= second)
    return series.nodes[last]


def _close(here: float, there: int) -> bool:
    return abs(here - there) <= CLOSE * there + 1e-9


def table(document: dict[str, Any]) -> str:
    """Return the table as Markdown."""
    head = ("recording, 26 minutes each", "bill, recorded and simulated", "restarts", "node hours")
    lines = [f"| {' | '.join(head)} | minutes within 10 % | or one node |", "|---|---|---|---|---|---|"]
    for row in document["rows"]:
        real, simulated, error = row["recorded"], row["simulated"], row["error"]
        (fewest, most), (least, longest) = row["range"]["podsDisrupted"], row["range"]["nodeHours"]
        lines.append(
            f"| `{row['recording']}` | ${real['cost']:.3f}, ${simulated['cost']:.3f} ({100 * error['cost']:.1f} %) "
            f"| {real['podsDisrupted']:.0f}, {simulated['podsDisrupted']:.0f} ({100 * error['podsDisrupted']:.0f} %; "
            f"{fewest:.0f} to {most:.0f}) "
            f"| {real['nodeHours']:.2f}, {simulated['nodeHours']:.2f} ({100 * error['nodeHours']:.0f} %; "
            f"{least:.1f} to {longest:.1f}) "
            f"| {row['minutesWithin']} of {row['minutes']} | {row['minutesWithinOneNode']} of {row['minutes']} |"
        )
    lines = [line.replace(" | ", "|").strip("| ") for line in lines]
    same = document["sameCourseTwice"]
    lines.append(
        "\nSimulated: means of four or eight seeds, with the least and the most. Without the first five minutes."
    )
    lines.append(
        f"`off-peak` and `off-peak-2` are the same course, recorded twice: the nodes of the real Karpenter agree with\n"
        f"each other within 10 % at {same['minutesWithin']} of {same['minutes']} minutes."
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Replay everything, and write the figures and the table."""
    rows = measured()
    document = {
        "benchmark": "calibration",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "rows": rows,
        "sameCourseTwice": between_recordings(),
    }
    OUT.write_text(json.dumps(document, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(MARK)
    PAGE.write_text(before + MARK + table(document) + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
