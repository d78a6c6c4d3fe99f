"""What a comparison of policies looks like to a person: the sentence, the table and the page.

Made from `Result`s only; runs nothing. One policy is the yardstick for the others: `karpenter-1.15` where it took part,
else the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from dovetail.report import page as html
from dovetail.report.svg import Series as Line
from dovetail.report.svg import bar_chart, histogram, line_chart
from dovetail.report.words import count, dollars, span
from dovetail.sim.knee import knee
from dovetail.sim.ledger import Result

_LIFE_EDGES = (0, 300, 900, 3600, 6 * 3600, 86400)
_LIFE_LABELS = ("under 5m", "5-15m", "15-60m", "1-6h", "6-24h", "over 24h")
YARDSTICK = "karpenter-1.15"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Several policies on one world."""

    scenario: str
    about: str
    seed: int
    seconds: float
    results: Sequence[Result]

    @property
    def yardstick(self) -> Result:
        """What the others are compared with."""
        return next((entry for entry in self.results if entry.policy == YARDSTICK), self.results[0])

    @property
    def best(self) -> Result:
        """Of the other policies the one nearest to least cost and fewest moves together; of equals the calmer."""
        others = [entry for entry in self.results if entry is not self.yardstick] or [self.yardstick]
        return knee(
            others,
            cost=lambda entry: entry.cost,
            moves=lambda entry: entry.pods_disrupted,
            name=lambda entry: entry.policy,
        )


def sentence(comparison: Comparison) -> str:
    """What a manager wants to know, in one or two sentences."""
    before, after = comparison.yardstick, comparison.best
    began = (
        f"In {span(comparison.seconds)}, {before.policy} moved pods {before.pods_disrupted:,} times "
        f"({count(before.pods_disrupted_more_than_once, 'pod')} more than once) and went through "
        f"{count(before.nodes_started, 'new node')}, {before.short_lived_nodes:,} of which lived under 15 minutes"
    )
    if after is before:
        return f"{began}, for {dollars(before.cost, 2)}."
    return (
        f"{began}. With {after.policy} it was {after.pods_disrupted:,} times "
        f"({count(after.pods_disrupted_more_than_once, 'pod')} more than once) and "
        f"{count(after.nodes_started, 'new node')}; "
        f"the bill was {dollars(after.cost, 2)} instead of {dollars(before.cost, 2)} ({_change(before, after)})."
    )


def _change(before: Result, after: Result) -> str:
    if not before.cost:
        return "nothing to compare"
    percent = 100 * (after.cost - before.cost) / before.cost
    return f"{percent:+.1f} %" if abs(percent) >= 0.05 else "the same"


COLUMNS = (
    "policy", "pods moved", "more than once", "new nodes", "lived < 15m", "median life", "node hours", "cost",
    "waiting", "violations",
)  # fmt: skip


def rows(results: Sequence[Result]) -> list[list[str]]:
    """The table of all policies, as text."""
    return [
        [
            entry.policy,
            f"{entry.pods_disrupted:,}",
            f"{entry.pods_disrupted_more_than_once:,}",
            f"{entry.nodes_started:,}",
            f"{entry.short_lived_nodes:,}",
            span(entry.median_node_life_seconds) if entry.median_node_life_seconds is not None else "none ended",
            f"{entry.node_hours:,.1f}",
            dollars(entry.cost, 2),
            span(entry.pending_pod_seconds),
            f"{len(entry.violations)}",
        ]
        for entry in results
    ]


def simulation_page(comparison: Comparison, footer: str) -> str:
    """The page: figures, plots, what each policy did, what held nodes back."""
    before, after = comparison.yardstick, comparison.best
    body = [
        html.cards(
            [
                (f"{before.pods_disrupted:,} → {after.pods_disrupted:,}", "pods moved"),
                (
                    f"{before.pods_disrupted_more_than_once:,} → {after.pods_disrupted_more_than_once:,}",
                    "pods moved more than once",
                ),
                (f"{before.short_lived_nodes:,} → {after.short_lived_nodes:,}", "nodes that lived under 15 minutes"),
                (f"{dollars(before.cost, 2)} → {dollars(after.cost, 2)}", f"bill, {before.policy} → {after.policy}"),
            ]
        ),
        f'<p class="soft">{html.text(comparison.about, 2000)}</p>' if comparison.about else "",
        "<h2>Side by side</h2>",
        html.table(COLUMNS, [[html.text(cell) for cell in row] for row in rows(comparison.results)], range(1, 10)),
        _actions(comparison.results),
        "<h2>Over time</h2>",
        *_over_time(comparison.results),
        "<h2>What became of nodes and pods</h2>",
        *_spread(comparison.results),
        "<h2>What held nodes back</h2>",
        *_gates(comparison.results),
        _violations(comparison.results),
    ]
    title = f"{comparison.scenario}: {count(len(comparison.results), 'policy', 'policies')}, the same world"
    return html.page(title, html.text(sentence(comparison), 1000), "".join(body), footer)


def _actions(results: Sequence[Result]) -> str:
    kinds = sorted({kind for entry in results for kind in entry.actions})
    if not kinds:
        return '<p class="soft">No policy took any action.</p>'
    table = [
        [html.text(entry.policy), *(f"{entry.actions.get(kind, 0):,}" for kind in kinds), f"{entry.commands_failed:,}"]
        for entry in results
    ]
    return "<h3>Actions</h3>" + html.table(["policy", *kinds, "undone"], table, range(1, len(kinds) + 2))


def _over_time(results: Sequence[Result]) -> list[str]:
    def lines(pick: str) -> list[Line]:
        return [
            Line(name=entry.policy, points=list(zip(entry.series.seconds, getattr(entry.series, pick), strict=True)))
            for entry in results
        ]

    return [
        html.figure(
            "Nodes",
            line_chart("nodes over time", lines("nodes"), y_label="nodes", x_format=span),
            "Machines that run. Sawteeth are nodes replaced and replaced again.",
        ),
        html.figure(
            "Cost",
            line_chart("cost over time", lines("cost_per_hour"), y_label="$ per hour", x_format=span),
            "What the machines that run cost per hour.",
        ),
        html.figure(
            "Disruptions",
            line_chart(
                "pods disrupted per hour",
                [Line(name=entry.policy, points=_hourly(entry)) for entry in results],
                y_label="pods per hour",
                x_format=span,
            ),
            "Pods that had to move, per hour. Lower is calmer.",
        ),
        html.figure(
            "Pods moved so far",
            line_chart(
                "pods moved so far",
                [Line(name=entry.policy, points=_so_far(entry)) for entry in results],
                y_label="pods",
                x_format=span,
            ),
            "The same, added up. A line that keeps climbing is churn.",
        ),
        html.figure(
            "Waiting pods",
            line_chart("pending pods", lines("pending"), y_label="pods", x_format=span),
            "Pods without a node. A policy that saves money by letting pods wait would show here.",
        ),
    ]


def _hourly(result: Result) -> list[tuple[float, float]]:
    """Disruptions per hour in about two dozen even stretches: samples alone would be a picket fence."""
    series = result.series
    size = max(1, len(series.seconds) // 24)
    hours = size * series.step_seconds / 3600
    return [
        (series.seconds[begin], sum(series.pods_disrupted[begin : begin + size]) / hours)
        for begin in range(0, len(series.seconds), size)
    ]


def _so_far(result: Result) -> list[tuple[float, float]]:
    totals = accumulate(result.series.pods_disrupted)
    return [(second, float(total)) for second, total in zip(result.series.seconds, totals, strict=True)]


def _spread(results: Sequence[Result]) -> list[str]:
    lives = [
        (entry.policy, [life.ended - life.started for life in entry.lives if life.ended is not None])
        for entry in results
    ]
    most = max((times for entry in results for times in entry.moves), default=0)
    last = min(most, 6)
    moved = [
        (
            entry.policy,
            [float(min(times, last)) for times, pods in entry.moves.items() if times > 0 for _ in range(pods)],
        )
        for entry in results
    ]
    labels = [f"{times}x" for times in range(1, last + 1)]
    if last < most:
        labels[-1] += " or more"
    return [
        html.figure(
            "How long nodes lived",
            histogram("node lifetimes", lives, edges=_LIFE_EDGES, labels=_LIFE_LABELS, y_label="nodes that ended"),
            "Nodes that ended, by how long they had lived. What stands on the left was bought for nothing.",
        ),
        html.figure(
            "How often the same pod was moved",
            histogram(
                "moves per pod", moved, edges=[float(t) for t in range(1, last + 1)], labels=labels, y_label="pods"
            ),
            "Pods, by how many times their node was taken from under them.",
        ),
    ]


def _gates(results: Sequence[Result]) -> list[str]:
    parts = []
    for entry in results:
        held = sorted(
            ((gate, sum(samples) / max(1, len(samples))) for gate, samples in entry.series.gates.items()),
            key=lambda pair: (-pair[1], pair[0]),
        )
        bars = [(gate, round(average, 1)) for gate, average in held if average >= 0.05][:8]
        if bars:
            parts.append(
                html.figure(
                    entry.policy,
                    bar_chart(f"gates under {entry.policy}", bars, y_label="nodes, on average"),
                    "On average, how many nodes each gate held.",
                )
            )
    return parts or ['<p class="soft">No gate was recorded.</p>']


def _violations(results: Sequence[Result]) -> str:
    broken = [(entry.policy, violation) for entry in results for violation in entry.violations]
    if not broken:
        return '<p class="good">✓ No promise was broken: budgets, PDBs, pods, launches and taints were watched.</p>'
    table = [[html.text(policy), html.text(str(violation.figures()), 500)] for policy, violation in broken[:50]]
    return f'<p class="bad">✗ {count(len(broken), "broken promise")}</p>' + html.table(["policy", "what"], table)
