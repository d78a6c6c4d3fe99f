"""Other people's load: slices of public traces under tuned Karpenter and `recommended`, and their page.

The traces are in ../shared/traces and not part of the project; without them this benchmark has nothing to run. Every
policy gets the same pods in the same pool (the one of `trace-replay`). A trace has no bill, so there is no calibration.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, Final

from msgspec.structs import replace as change

from benchmarks.frontier import KARPENTERS, SHARED
from dovetail.model.money import UNIT
from dovetail.model.settings import KARPENTER_1_15
from dovetail.model.timing.duration import parse_simple
from dovetail.sim.compare import run_all
from dovetail.sim.scenarios.scenario import Policy, Scenario, load_scenario, recommended_policy, with_trace

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "traces.md"
FOLDER: Final = SHARED / "traces"
SEEDS: Final = 1
RESTART_PRICE: Final = 0.005
"""Dollars, as `dovetail tune` counts if it is told nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a trace: `section` says which, and how its pods are scaled to ordinary machines."""

    file: str
    about: str
    until: str
    section: Mapping[str, Any]
    warm_up: str = "5m"
    note: str = ""
    """What explains the figures, in lines of the page."""


SLICES: Final = {
    "Alibaba DLRM 2025": Slice(
        file="alibaba-dlrm-2025/pods.csv.gz",
        about="inference services on CPUs, day 20 of 31; one instance in 20, an eighth of its size",
        until="24h",
        section={"skip": "20d", "share": 0.05, "cpu_scale": 0.125, "memory_scale": 0.125},
        note=(
            "`recommended` restarts the same 105 pods: most machines cost $6 an hour, and a command saves $0.55\n"
            "an hour for four restarts."
        ),
    ),
    "Azure 2017": Slice(
        file="azure-v1-2017/pods-sample-1day.csv.gz",
        about="virtual machines as pods, twelve hours; one in 100",
        until="12h",
        section={"skip": "auto", "share": 0.01},
    ),
    "openb 2023": Slice(
        file="alibaba-openb-2023/pods.csv.gz",
        about="the pods without a GPU, four days in twelve hours",
        until="12h",
        section={"skip": "130d", "speed": 8.0},
    ),
    "Borg 2011": Slice(
        file="google-borg-2011/pods.csv.gz",
        about="a snapshot whose tasks end one by one; one in 100",
        until="6h",
        section={"share": 0.01},
    ),
    "SimKube 2024": Slice(
        file="simkube-dsb-2024/deployment_events.csv",
        about="27 Deployments of DeathStarBench that are scaled for 21 minutes",
        until="30m",
        section={},
        warm_up="1m",
    ),
}


def scenario_of(part: Slice) -> Scenario:
    """Return the scenario that plays a slice."""
    scenario = with_trace(load_scenario("trace-replay"), str(FOLDER / part.file))
    assert scenario.file.trace is not None
    trace = change(scenario.file.trace, limit=0, skip="0s")
    return replace(
        scenario,
        file=change(scenario.file, trace=change(trace, **part.section)),
        until=parse_simple(part.until, "smhd"),
        warm_up=parse_simple(part.warm_up, "smhd"),
        figures_only=True,
    )


def policies() -> list[Policy]:
    """Return Karpenter as people tune it, and what the docs recommend."""
    return [
        *(
            Policy(name=name, settings=KARPENTER_1_15, disruption=fields)
            for name, fields in KARPENTERS.items()
            if fields != {"consolidateAfter": "1m"}  # as the pool has it
        ),
        recommended_policy(),
    ]


def run() -> list[dict[str, Any]]:
    """Run every slice that is there under every policy, and write the page."""
    rows = list(_rows())
    PAGE.write_text(page(rows))
    return rows


def _rows() -> Iterator[dict[str, Any]]:
    for name, part in SLICES.items():
        if not (FOLDER / part.file).exists():
            continue
        scenario = scenario_of(part)
        tasks = [(scenario, policy, seed, scenario.until) for policy in policies() for seed in range(SEEDS)]
        results = run_all(tasks)
        for at, policy in enumerate(policies()):
            own = results[at * SEEDS : (at + 1) * SEEDS]
            row = {
                "trace": name,
                "policy": policy.name,
                "seeds": SEEDS,
                "dollars": round(mean(each.cost / UNIT for each in own), 3),
                "podsDisrupted": round(mean(each.pods_disrupted for each in own), 1),
                "podsDisruptedMoreThanOnce": round(mean(each.pods_disrupted_more_than_once for each in own), 1),
                "shortLivedNodes": round(mean(each.short_lived_nodes for each in own), 1),
                "nodeHours": round(mean(each.node_hours for each in own), 1),
                "violations": sum(len(each.violations) for each in own),
            }
            print(json.dumps(row), flush=True)
            yield row


def page(rows: Sequence[dict[str, Any]]) -> str:
    """Return the page."""
    lines = [
        "# Other people's load",
        "",
        "Public traces in the pool of `trace-replay`, one seed each. `*`: no other",
        "policy is both cheaper and calmer. Total: bill plus half a cent a restart. `python -m benchmarks traces` writes",
        "this page. Pods with a GPU are left out. Try your own:",
        "`dovetail tune --trace pods.csv.gz`.",
    ]
    for name, part in SLICES.items():
        own = sorted(
            (row for row in rows if row["trace"] == name), key=lambda row: (row["dollars"], row["podsDisrupted"])
        )
        if not own:
            continue
        lines += [
            "",
            f"## {name}",
            "",
            f"{part.about[0].upper()}{part.about[1:]}; {own[0]['nodeHours'] / _hours(part):.0f} nodes on average.",
            *([part.note] if part.note else []),
            "",
            "policy|bill|restarts|nodes under 15 min|total",
            "---|---|---|---|---",
            *(_line(row, own) for row in own),
        ]
    return "\n".join(lines) + "\n"


def _hours(part: Slice) -> float:
    return parse_simple(part.until, "smhd") / parse_simple("1h", "smhd")


def _line(row: dict[str, Any], others: Sequence[dict[str, Any]]) -> str:
    mark = "" if any(_beats(other, row) for other in others) else "\\*"
    total = row["dollars"] + RESTART_PRICE * row["podsDisrupted"]
    cells = (f"${row['dollars']:.2f}", f"{row['podsDisrupted']:.0f}", f"{row['shortLivedNodes']:.0f}", f"${total:.2f}")
    return "|".join((f"{row['policy']}{mark}", *cells))


def _beats(one: dict[str, Any], other: dict[str, Any]) -> bool:
    mine, theirs = (one["dollars"], one["podsDisrupted"]), (other["dollars"], other["podsDisrupted"])
    return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1]
