"""What is a restart worth? The bill and the restarts of tuned Karpenter and of `recommended`, on every course.

A course is a scenario or a recording at a price level. Karpenter runs as people tune it (default, `consolidateAfter`
of 1, 5 and 15 minutes, Balanced, WhenEmpty), beside `recommended` as it is and told a `restartPrice`. Totals are bill
+ price x restarts at a tenth of a cent, half a cent and two cents; the best tuned Karpenter of each course and price is
what they are compared with.

Every run is kept in a file as it ends (`BENCH_KEPT`, by default build/frontier.jsonl), so that nothing is run twice: a
stopped run goes on where it was. Runs of Karpenter's own policies are kept whatever the code, others by its digest.
`BENCH_COURSES` chooses courses by name and `BENCH_SEEDS` the number of seeds.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final

from dovetail.model.catalogue import Catalogue
from dovetail.model.money import UNIT
from dovetail.model.settings import KARPENTER_1_15
from dovetail.sim.engines import code_digest
from dovetail.sim.ledger import Result
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.recording import load_kwok_types, load_recording, replay
from dovetail.sim.scenarios.scenario import Policy, load_scenario, recommended_policy
from dovetail.sim.scenarios.simulated_cloud import catalogue_of

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
KEPT: Final = Path(os.environ.get("BENCH_KEPT", ROOT / "build" / "frontier.jsonl"))
BUILT_IN: Final = ("issue-7146", "batch-churn", "day-night")
LEVELS: Final = ("1", "0.35", "4")
"""Price levels: on-demand as listed, about spot, and four times as dear."""
PRICES: Final = (0.001, 0.005, 0.02)
SEEDS: Final = 8
KARPENTERS: Final[dict[str, dict[str, Any]]] = {
    "karpenter": {},
    "karpenter 1m": {"consolidateAfter": "1m"},
    "karpenter 5m": {"consolidateAfter": "5m"},
    "karpenter 15m": {"consolidateAfter": "15m"},
    "karpenter Balanced": {"consolidationPolicy": "Balanced"},
    "karpenter WhenEmpty": {"consolidationPolicy": "WhenEmpty"},
}
FIGURES: Final = ("bill", "restarts", "repeats", "shortLives", "waiting", "violations")


def policies() -> Iterator[Policy]:
    """Yield tuned Karpenter, and the recommended policy as it is and told a price."""
    for name, fields in KARPENTERS.items():
        yield Policy(name=name, settings=KARPENTER_1_15, disruption=fields)
    own = recommended_policy()
    yield own
    for price in map(str, PRICES):
        yield replace(own, name=told(price), disruption={"restartPrice": price})


def told(price: object) -> str:
    """Return the name of the recommended policy that is told a price."""
    return f"recommended, told {price}"


def courses() -> dict[str, Path | str]:
    """Return the scenarios by name: those that are built in, and those of ../shared if they are there."""
    found: dict[str, Path | str] = {name: name for name in BUILT_IN}
    found |= {file.stem: file for file in sorted((SHARED / "scenarios").glob("*.yaml"))}
    found |= {f"recording {file.parent.name}": file for file in sorted((SHARED / "recordings").glob("*/*.json.gz"))}
    found["recording up-and-down"] = ROOT / "tests" / "sim" / "recordings" / "up-and-down.json.gz"
    wanted = os.environ.get("BENCH_COURSES", "")
    return {name: place for name, place in found.items() if not wanted or name in wanted.split(",")}


def scaled(catalogue: Catalogue, factor: Fraction) -> Catalogue:
    """Return a catalogue with every price multiplied."""
    kinds = []
    for kind in catalogue.instance_types:
        amounts = [round(offer.price * factor) for offer in kind.offerings]
        pairs = zip(kind.offerings, amounts, strict=True)
        offers = tuple(replace(offer, price=amount, price_float=amount / UNIT) for offer, amount in pairs)
        kinds.append(replace(kind, offerings=offers))
    return replace(catalogue, instance_types=tuple(kinds))


def _run(course: Path | str, level: str, policy: Policy, seed: int) -> Result | None:
    """Run a course; None: a recording has the prices that were paid."""
    if str(course).endswith(".json.gz"):
        if level != "1":
            return None
        types = load_kwok_types(SHARED / "tools" / "types.json")
        return replay(
            load_recording(Path(course)), types, policy.settings, policy.disruption or None, seed, policy.name
        )
    scenario = replace(load_scenario(course), figures_only=True)
    if level != "1":
        scenario = replace(scenario, catalogue=scaled(catalogue_of(scenario), Fraction(level)))
    return run_scenario(scenario, policy, seed)


def kept_runs() -> Iterator[dict[str, Any]]:
    """Yield the figures of every run, each as soon as it is known."""
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    known = {tuple(row["key"]): row for row in map(json.loads, lines)}
    digest = code_digest()
    for seed in range(int(os.environ.get("BENCH_SEEDS", SEEDS))):
        for name, course in courses().items():
            for level in LEVELS:
                for policy in policies():
                    code = "" if policy.settings.rules.plays_karpenter else digest
                    key = (name, level, policy.name, str(seed), code)
                    row = known.get(key)
                    if row is None and (result := _run(course, level, policy, seed)) is not None:
                        row = {"key": key, **_figures(result)}
                        with KEPT.open("a") as file:
                            file.write(json.dumps(row) + "\n")
                        print(*key[:4], *(row[figure] for figure in FIGURES), flush=True)
                    if row is not None:
                        yield row


def _figures(result: Result) -> dict[str, Any]:
    return {
        "bill": round(result.cost / UNIT, 6),
        "restarts": result.pods_disrupted,
        "repeats": result.pods_disrupted_more_than_once,
        "shortLives": result.short_lived_nodes,
        "waiting": round(result.pending_pod_seconds),
        "violations": len(result.violations),
    }


def rows() -> list[dict[str, Any]]:
    """Return a row for every course, price level and policy: means over the seeds, and totals."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for run in kept_runs():
        name, level, policy = run["key"][:3]
        found.setdefault((name, level, policy), []).append(run)
    made = []
    for (name, level, policy), runs in found.items():
        row: dict[str, Any] = {"kind": "frontier", "name": name, "level": level, "policy": policy, "seeds": len(runs)}
        row |= {figure: round(mean(run[figure] for run in runs), 4) for figure in FIGURES}
        for price in PRICES:
            totals = [run["bill"] + price * float(Fraction(level)) * run["restarts"] for run in runs]
            row[f"total at ${price}"] = round(mean(totals), 4)
            row[f"scatter at ${price}"] = round(stdev(totals), 4) if len(totals) > 1 else None
        made.append(row)
    return [row | gaps(row, made) for row in made]


def gaps(row: dict[str, Any], all_rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how far a total is from that of the best tuned Karpenter, in percent."""
    found = {}
    for price in PRICES:
        key = f"total at ${price}"
        same = [other for other in all_rows if (other["name"], other["level"]) == (row["name"], row["level"])]
        theirs = [other[key] for other in same if other["policy"] in KARPENTERS]
        found[f"gap at ${price}"] = round(100 * (row[key] / min(theirs) - 1), 2) if theirs else None
    return found


def table(made: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the table: one row for each course, level and policy."""
    lines = [
        "Totals (bill + price x restarts) against the best tuned Karpenter of each course, in percent.\n",
        "| course | prices | policy | seeds | bill | restarts | again | under 15 min | waited | "
        + " | ".join(f"${price}" for price in PRICES)
        + " |",
        "|---|---|---|---|---|---|---|---|---|" + "---|" * len(PRICES),
    ]
    for row in made:
        gaps = " | ".join("" if row[f"gap at ${p}"] is None else f"{row[f'gap at ${p}']:+.1f}" for p in PRICES)
        lines.append(
            f"| {row['name']} | x {row['level']} | {row['policy']} | {row['seeds']} | ${row['bill']:.3f} "
            f"| {row['restarts']:.0f} | {row['repeats']:.0f} | {row['shortLives']:.1f} | {row['waiting']:.0f} s | {gaps} |"
        )
    return lines


def summary(made: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a short table: a row for each course and level, the gaps at every price."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in made:
        found.setdefault((row["name"], row["level"]), {})[row["policy"]] = row
    lines = [
        f"Total = bill + price x restarts, in percent of the best of {len(KARPENTERS)} settings of Karpenter, at "
        + ", ".join(f"${price}" for price in PRICES)
        + " a restart. Told: `recommended` with that price as `restartPrice`.\n",
        "| course | prices | seeds | best | `recommended` | told |",
        "|---|---|---|---|---|---|",
    ]
    for (name, level), rows in found.items():
        own = [_gaps_of(rows, ["recommended"] * len(PRICES)), _gaps_of(rows, [told(price) for price in PRICES])]
        key = f"total at ${PRICES[1]}"
        theirs = [row for policy, row in rows.items() if policy in KARPENTERS]
        best = min(theirs, key=lambda row: float(row[key]))["policy"].removeprefix("karpenter").strip() or "default"
        seeds = min(row["seeds"] for row in rows.values())
        lines.append(f"| {name} | x {level} | {seeds} | {best} | " + " | ".join(own) + " |")
    return lines


def _gaps_of(rows: dict[str, dict[str, Any]], policies_: list[str]) -> str:
    gaps = [
        rows[policy][f"gap at ${price}"] if policy in rows else None
        for policy, price in zip(policies_, PRICES, strict=True)
    ]
    return "" if all(gap is None for gap in gaps) else ", ".join("?" if gap is None else f"{gap:+.1f}" for gap in gaps)


def plot(made: list[dict[str, Any]], price: float = PRICES[1]) -> str:
    """Return an SVG: for each course at list prices, the total of each policy against the best tuned Karpenter's."""
    own = [row for row in made if row["level"] == "1" and row[f"gap at ${price}"] is not None]
    names = list(dict.fromkeys(row["name"] for row in own))
    wide, high = 760, 60 + 34 * len(names)
    most = 30.0
    colours = {"recommended": "#d55e00", "karpenter": "#0072b2", "karpenter Balanced": "#00795c"}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{high}" fill="#fff"/>',
        f"<title>Total (bill + ${price} x restarts) against the best tuned Karpenter, in percent</title>",
    ]

    def across(gap: float) -> float:
        return round(170 + (max(-15.0, min(most, gap)) + 15) * 560 / (most + 15), 1)

    for mark in range(-15, 31, 5):
        x = across(mark)
        parts.append(f'<path d="M{x} 20V{high - 34}" stroke="{"#888" if mark == 0 else "#ddd"}"/>')
        parts.append(f'<text x="{x}" y="{high - 18}" text-anchor="middle">{mark:+d} %</text>')
    for at, name in enumerate(names):
        y = 38 + 34 * at
        parts.append(f'<text x="160" y="{y + 4}" text-anchor="end">{name}</text>')
        for row in (row for row in own if row["name"] == name):
            x, colour = across(row[f"gap at ${price}"]), colours.get(row["policy"])
            if row["policy"] == "recommended":
                parts.append(f'<rect x="{x - 6}" y="{y - 6}" width="12" height="12" fill="{colour}"/>')
            elif row["policy"] in KARPENTERS:
                parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{colour or "#999"}"/>')
    legend = (("recommended", "recommended"), ("karpenter", "Karpenter"), ("karpenter Balanced", "Balanced"))
    for at, (policy, word) in enumerate(legend):
        x = 200 + 150 * at
        parts.append(f'<circle cx="{x}" cy="{high - 6}" r="4" fill="{colours[policy]}"/>')
        parts.append(f'<text x="{x + 8}" y="{high - 2}">{word}</text>')
    parts.append(
        f'<circle cx="650" cy="{high - 6}" r="4" fill="#999"/><text x="658" y="{high - 2}">1m, 5m, 15m, ...</text>'
    )
    return "".join([*parts, "</svg>"])
