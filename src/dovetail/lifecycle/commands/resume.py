"""What an earlier engine left on the cluster: commands to take over, and marks that belong to none.

Reads only records and taints of the objects; the machine then decides, from phase `found`, whether a command is
finished or rolled back. Also finds late effects: an instruction of a predecessor that the API server executed after
this process took over. See docs/rules.md#carrying-out. Sits in lifecycle, below `engine`.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Record, is_tainted, record_of
from dovetail.lifecycle.messages import ClearRecord, UntaintNode
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.objects import Node, NodeClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Records of commands that no engine runs, and single marks to remove.

    `any_marks`: whether there are marks of no known command at all, also such as nothing is done about.
    """

    records: tuple[Record, ...]
    sweeps: tuple[UntaintNode | ClearRecord, ...]
    any_marks: bool


def find(store: Store, controller: str, known: AbstractSet[str], manages: Callable[[str], bool]) -> Leftovers:
    """Look through the marked objects of a controller. `known`: its commands in progress, or just ended."""
    records: dict[str, Record] = {}
    sweeps: list[UntaintNode | ClearRecord] = []
    nodes, claims = store.marks.others(controller, known)
    for name in claims:
        claim = store.get(NodeClaim, name)
        record = None if claim is None else record_of(claim)
        if record is None:
            sweeps.append(ClearRecord(id=f"sweep/clear/{name}", command_id="", node_claim=name))
        else:
            _keep_latest(records, record)
    for name in nodes:
        node = store.get(Node, name)
        if node is None or node.metadata.deletion_timestamp is not None:
            continue
        record = record_of(node)
        if record is not None and any(entry.node == name for entry in record.nodes):
            _keep_latest(records, record)
        else:
            sweep = _sweep(store, node, record, manages)
            if sweep is not None:
                sweeps.append(sweep)
    latest = tuple(records[ident] for ident in sorted(records))
    return Leftovers(records=latest, sweeps=tuple(sweeps), any_marks=bool(nodes or claims))


def _keep_latest(records: dict[str, Record], record: Record) -> None:
    """Keep the latest of several records of one command: that of its launch over that of its taint.

    Each Node's record names the pods that were evicted from it: all of them count.
    """
    known = records.get(record.id)
    evicted = (*(known.evicted if known is not None else ()), *record.evicted)
    latest = record if known is None or known.since < record.since else known
    records[record.id] = replace(latest, evicted=tuple(dict.fromkeys(evicted)))


def _sweep(
    store: Store, node: Node, record: Record | None, manages: Callable[[str], bool]
) -> UntaintNode | ClearRecord | None:
    """Return how to clean a node that carries a taint without a record, or the copy of its NodeClaim's record."""
    name = node.metadata.name
    if record is None:
        # A taint without a record: removed on managed pools only (others may use the same key elsewhere).
        ours = manages(node.metadata.labels.get(names.NODEPOOL, ""))
        return UntaintNode(id=f"sweep/untaint/{name}", command_id="", node=name) if ours else None
    claim = store.claim_of(name)
    if claim is None or is_tainted(node):
        return UntaintNode(id=f"sweep/untaint/{name}", command_id=record.id, node=name)
    if claim.metadata.name in store.marks.claims:
        return None  # its command is found through the NodeClaim
    ident = f"sweep/clear/{claim.metadata.name}"
    return ClearRecord(id=ident, command_id=record.id, node_claim=claim.metadata.name)


def take_over(record: Record, *, taken: Callable[[str], bool], now: datetime, elapsed: int, timeout: int) -> Run:
    """Build a command from a record. Nodes that another command of this engine has are left to that one."""
    spent = max(0, (now - record.since) // timedelta(microseconds=1) * 1000)
    return Run(
        id=record.id,
        action=record.action,
        method=record.method,
        candidates=tuple(entry for entry in record.nodes if not taken(entry.node)),
        replacements=record.replacements,
        pools=record.pools,
        by=record.by,
        evicted_before=record.evicted,
        phase=Phase.FOUND,
        began=record.since,
        began_at=elapsed,
        phase_since=elapsed,
        deadline=elapsed + max(0, timeout - spent),
    )
