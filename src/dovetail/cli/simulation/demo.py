"""`dovetail demo`: the cluster of issue 7146 under the old rules and the new ones, in under a minute, with a page."""

import argparse
from pathlib import Path

from dovetail.api.findings import InputError
from dovetail.cli.output import print_lines

PAGE = "dovetail-demo.html"
_EPILOG = """\
Nothing is needed: no cluster, no network. The same command gives the same figures every time.

examples:
  dovetail demo
  dovetail simulate issue-7146 -o json     the same, as data
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "demo",
        help="see it work: one cluster under the old rules and the new ones",
        description="Simulates the cluster of issue 7146 under Karpenter's rules and under Dovetail's, side by side.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="the world's seed (default 0)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Simulate, print the table and the sentence, write the page."""
    from dovetail.cli.progress import progress_bar
    from dovetail.cli.simulation.simulate import as_page, as_text
    from dovetail.report.table import paragraph
    from dovetail.sim.compare import compare
    from dovetail.sim.pages.comparison import sentence
    from dovetail.sim.pages.story import headline
    from dovetail.sim.scenarios.scenario import load_scenario

    path = Path.cwd() / PAGE
    try:
        path.touch()
    except OSError as error:
        raise InputError(f"{path}: can't be written ({error.strerror}); run the demo in a folder of yours") from None
    scenario = load_scenario("issue-7146")
    with progress_bar(f"simulating six hours of a small cluster under {len(scenario.policies)} policies") as progress:
        found = compare(scenario, scenario.policies, args.seed, progress=progress)
    print_lines([*paragraph(f"{headline(found.story())}."), ""])
    print(as_text(found))
    print()
    print_lines(paragraph(sentence(found.story())))
    path.write_text(as_page(found, f"dovetail demo --seed {args.seed}"), encoding="utf-8")
    print(f"\nThe whole story, with plots: {path}")
    return 0
