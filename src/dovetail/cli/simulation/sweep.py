"""`dovetail sweep`: many policies and seeds; cost against disruption."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli.output import print_json, print_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.sim.compare import Progress, Task
    from dovetail.sim.ledger import Result

_EPILOG = """\
A grid file varies fields of spec.disruption and settings, on top of one of the
scenario's policies; every combination runs on every seed, and karpenter-1.15
beside them as the baseline:

  base: both
  vary:
    consolidationGracePeriod: [Never, 10m, 30m]
    consolidationSavingsThreshold: [0, 0.005, 0.01]
    budgets: [[{nodes: "10%"}], [{nodes: "50%"}]]
    batchMaximum: [10, 100]
  seeds: 5

The recommendation is the policy with the least bill plus $0.02 for each pod
restart; of those that the scatter over the seeds leaves undecided, the cheaper.

examples:
  dovetail sweep issue-7146 --grid grid.yaml
  dovetail sweep issue-7146 --grid grid.yaml -o html > sweep.html
  dovetail sweep issue-7146 --grid grid.yaml --keep runs/
  dovetail sweep issue-7146 --grid grid.yaml --engine dask://10.0.0.5:8786

On a Dask cluster, install the same dovetail-k8s[dask] on every machine and
start one worker process for each core:
  dask worker 10.0.0.5:8786 --nworkers 8 --nthreads 1
"""


def register(subparsers: Any) -> None:
    """Add the command to the command line."""
    from dovetail.cli.inputs import add_output_option

    parser = subparsers.add_parser(
        "sweep",
        help="many policies and seeds; cost against disruption",
        description="Runs a grid of policies on many seeds, and finds those that nothing else beats.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", metavar="SCENARIO", help="a YAML file, a shipped scenario's name, or a recording")
    parser.add_argument("--catalog", metavar="C", help="with a recording: types and prices")
    parser.add_argument("--grid", metavar="FILE", required=True, help="what to vary, and on how many seeds")
    parser.add_argument("--engine", default="local", help="local (all cores, the default) or dask://HOST:PORT")
    parser.add_argument(
        "--keep",
        metavar="DIR",
        help="keep each run in this folder as it ends; the same command then runs only what is missing",
    )
    parser.add_argument("--until", metavar="DURATION", help="how long to simulate; the scenario's own else")
    add_output_option(parser, ("text", "json", "html"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the grid and show the front."""
    from dovetail.cli.progress import progress_bar
    from dovetail.cli.recorded import load_course
    from dovetail.cli.simulation.simulate import parse_until
    from dovetail.sim.sweep import baseline_tasks, document, figures_of, load_grid, tasks_of

    scenario = load_course(args.scenario, args.catalog)
    grid = load_grid(args.grid, scenario)
    until = parse_until(args.until)
    tasks = [*baseline_tasks(scenario, grid, until), *tasks_of(scenario, grid, until)]
    with progress_bar(f"{len(tasks)} runs of {scenario.name}") as progress:
        results = run_tasks_kept(tasks, args, progress)
    found = document(scenario, figures_of(results))
    if args.output == "json":
        print_json(found)
    elif args.output == "html":
        from dovetail.sim.compare import measured_from
        from dovetail.sim.pages.sweep import sweep_page

        print_page(sweep_page(found, results, measured_from(scenario)))
    else:
        print(as_text(found))
    return 1 if any(run["violations"] for run in found["runs"]) else 0


def run_tasks_kept(tasks: "Sequence[Task]", args: argparse.Namespace, progress: "Progress | None") -> "list[Result]":
    """Run tasks on `--engine`; with `--keep` only those that did not run before."""
    from dovetail.sim.engines import run_tasks
    from dovetail.sim.kept_runs import run_kept

    if args.keep is None:
        return run_tasks(tasks, args.engine, progress, note=_note)
    try:
        return run_kept(tasks, args.engine, Path(args.keep), progress, note=_note)
    except (KeyboardInterrupt, SystemExit):
        _note(f"what has ended is in {args.keep}; the same command goes on from there")
        raise


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)


def as_text(found: dict[str, Any]) -> str:
    """Return the policies by cost, those on the front marked, and the recommendation."""
    from dovetail.report.table import paragraph, text_table

    front = set(found["front"])
    ordered = sorted(found["standings"], key=lambda one: (one["cost"], one["podsDisrupted"], one["policy"]))
    rows = []
    for one in ordered:
        mark = ">" if one["policy"] == found["recommended"] else "*" if one["policy"] in front else " "
        cost = f"${one['cost']:.2f} ± {one['costSpread']:.2f}"
        moved = f"{one['podsDisrupted']:.1f} ± {one['podsDisruptedSpread']:.1f}"
        rows.append((mark, one["policy"], cost, moved))
    lines = text_table(("", "POLICY", "COST", "PODS MOVED"), rows, right=(2, 3), flexible=(1,))
    lines += ["", "* no other is both cheaper and calmer; > recommended", "", *paragraph(found["why"])]
    return "\n".join(lines)
