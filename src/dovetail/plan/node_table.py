"""`dovetail explain --all`: every node in one table, with utilisation, age, pods and the verdict.

Formats what the core decided. Sits in plan; `cli.planning.explain` prints it.
"""

from dataclasses import dataclass

from dovetail import __version__
from dovetail.decide.decider import Decider
from dovetail.decide.document import Json
from dovetail.decide.question import Question
from dovetail.decide.words import clock
from dovetail.plan.node_detail import utilisation_of
from dovetail.plan.summary import prices_text
from dovetail.report import page as html
from dovetail.report.table import WIDTH, text_table
from dovetail.report.words import dollars, span


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node of the table."""

    name: str
    pool: str
    kind: str
    capacity_type: str
    zone: str
    price: int | None
    cpu: float | None
    memory: float | None
    pods: int
    age_seconds: float | None
    verdict: str
    why: str

    def to_dict(self) -> Json:
        """Return it as JSON."""
        return {
            "name": self.name,
            "nodePool": self.pool,
            "instanceType": self.kind,
            "capacityType": self.capacity_type,
            "zone": self.zone,
            "price": None if self.price is None else self.price / 10**18,
            "utilisation": {"cpu": self.cpu, "memory": self.memory},
            "pods": self.pods,
            "ageSeconds": None if self.age_seconds is None else round(self.age_seconds),
            "verdict": self.verdict,
            "why": self.why,
        }


def node_rows(question: Question, pools: tuple[str, ...] = ()) -> tuple[NodeRow, ...]:
    """Return every node, or those of some pools, by name."""
    decider = Decider()
    verdicts = {entry.node: entry for entry in decider.round(question, every_method=True).verdicts}
    scene = decider.scene(question)
    rows = []
    for facts in scene.nodes:
        if pools and facts.pool_name not in pools:
            continue
        used = utilisation_of(scene, facts)
        verdict = verdicts[facts.name]
        rows.append(
            NodeRow(
                name=facts.name,
                pool=facts.pool_name,
                kind=facts.instance_type,
                capacity_type=facts.capacity_type,
                zone=facts.zone,
                price=None if facts.offering_price is None else facts.price,
                cpu=None if "cpu" not in used else round(used["cpu"], 4),
                memory=None if "memory" not in used else round(used["memory"], 4),
                pods=len(facts.reschedulable),
                age_seconds=None if facts.created is None else (question.now - facts.created).total_seconds(),
                verdict=verdict.verdict,
                why=verdict.why,
            )
        )
    return tuple(rows)


def rows_document(question: Question, rows: tuple[NodeRow, ...]) -> Json:
    """Return the JSON document."""
    return {
        "now": clock(question.now),
        "profile": question.settings.profile.value,
        **({"policy": question.settings.policy} if question.settings.policy else {}),
        "nodes": [row.to_dict() for row in rows],
        "warnings": list(question.cluster.notes),
    }


def rows_text(rows: tuple[NodeRow, ...], *, wide: bool = False) -> str:
    """Return the table in words."""
    if not rows:
        return "There is no such node."
    head = ["NODE", "POOL", "CPU", "MEM", "PODS", "AGE", "$/H", "VERDICT"]
    cells = [
        [row.name, row.pool, _share(row.cpu), _share(row.memory), str(row.pods), _age(row), _price(row), row.verdict]
        for row in rows
    ]
    if wide:
        head += ["TYPE", "CAPACITY", "ZONE", "WHY"]
        cells = [[*cell, row.kind, row.capacity_type, row.zone, row.why] for cell, row in zip(cells, rows, strict=True)]
    return "\n".join(text_table(head, cells, right=(2, 3, 4, 5, 6), flexible=(0, 1), width=None if wide else WIDTH))


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _age(row: NodeRow) -> str:
    return "-" if row.age_seconds is None else span(max(0.0, row.age_seconds))


def _price(row: NodeRow) -> str:
    return "?" if row.price is None else dollars(row.price, 3).removeprefix("$")


def rows_page(question: Question, rows: tuple[NodeRow, ...]) -> str:
    """Return the table as a page."""
    cells = [
        [
            # The answer comes first: a small screen shows the first columns only.
            html.name(row.name),
            f"<code>{html.text(row.verdict)}</code>",
            html.text(row.why),
            html.text(_price(row)),
            html.name(row.pool),
            html.text(f"{row.kind} {row.capacity_type} {row.zone}"),
            _share(row.cpu),
            _share(row.memory),
            str(row.pods),
            _age(row),
        ]
        for row in rows
    ]
    head = ["node", "verdict", "why", "$ per hour", "pool", "machine", "cpu", "memory", "pods", "age"]
    lead = f"At {html.text(clock(question.now))}, by the rules of {html.text(question.settings.called)}."
    footer = " ".join(filter(None, (f"Dovetail {__version__}.", prices_text(question.catalogue, question.now))))
    table, notes = html.table(head, cells, (3, 6, 7, 8, 9)), html.notes(question.cluster.notes)
    return html.page(f"{len(rows):,} nodes, one by one", lead, table, footer, above=notes)
