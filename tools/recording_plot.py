"""Draws the recorded course of the real Karpenter beside the simulated one, and what the designs would have made of it.

Run from the project root: .venv/bin/python tools/recording_plot.py ../shared/recordings/off-peak/recording.json.gz ../shared/tools/types.json
"""

import sys
from pathlib import Path

from dovetail.report.svg import Series, line_chart
from dovetail.sim.scenarios.recording import POLICIES, load_kwok_types, load_recording, replay_all

OUT = Path(__file__).resolve().parents[1] / "docs" / "images"
SEEDS = 20
STYLE = (
    "<style>svg{background:#fff;font-family:sans-serif}text{font-size:11px;fill:#444}path{fill:none;stroke-width:1.8}"
    ".grid{stroke:#ddd;stroke-width:1}.s0{stroke:#0072b2}.s1{stroke:#d55e00}.s2{stroke:#00795c}.s3{stroke:#9b4d83}.s4{stroke:#8a6d00}.s5{stroke:#56b4e9}</style>"
)


def standalone(drawing: str) -> str:
    """Return a plot of a page as a file of its own."""
    head, rest = drawing.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg">{STYLE}{rest}\n'


def main(recording_path: str, types_path: str) -> None:
    """Draw two pictures: nodes recorded and simulated; pods moved so far under each policy."""
    recording, catalogue = load_recording(Path(recording_path)), load_kwok_types(Path(types_path))
    seconds = range(0, int(recording.seconds), 10)
    nodes = [Series(name="recorded", points=[(t / 60, recording.nodes_at(t)) for t in seconds])]
    moved = [
        Series(
            name="recorded",
            points=[
                (0, 0),
                *(
                    (c["t"] / 60, sum(d["pods"] for d in recording.commands if d["t"] <= c["t"]))
                    for c in recording.commands
                ),
            ],
        )
    ]
    for (name, _, _), results in zip(POLICIES, replay_all(recording, catalogue, range(SEEDS)), strict=True):
        lives = [[(life.started, life.ended or 1e9) for life in result.lives] for result in results]
        nodes.append(
            Series(
                name=name,
                points=[(t / 60, sum(sum(a <= t < b for a, b in run) for run in lives) / SEEDS) for t in seconds],
            )
        )
        moved.append(
            Series(
                name=name,
                points=[
                    (t / 60, sum(sum(c.pods for c in result.commands if c.at <= t) for result in results) / SEEDS)
                    for t in seconds
                ],
            )
        )
        mean = [
            sum(values) / SEEDS
            for values in zip(
                *((len(r.commands), r.pods_disrupted, r.short_lived_nodes, r.node_hours) for r in results), strict=True
            )
        ]
        print(f"| {name} | {mean[0]:.1f} | {mean[1]:.0f} | {mean[2]:.1f} | {mean[3]:.2f} |")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "recording-nodes.svg").write_text(
        standalone(
            line_chart("nodes, recorded and simulated", nodes, y_label="nodes", x_format=lambda m: f"{m:.0f} min")
        )
    )
    (OUT / "recording-moves.svg").write_text(
        standalone(line_chart("pods moved so far", moved, y_label="pods", x_format=lambda m: f"{m:.0f} min"))
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
