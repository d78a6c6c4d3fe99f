"""Commands in progress without an engine, and stores of objects, for tests of the engine's memories."""

from datetime import UTC, datetime

from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.store import Store
from dovetail.model.command import Action, Command, Method
from dovetail.model.objects import AnyObject

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)


def store_of(*items: AnyObject) -> Store:
    """Return a store that holds these objects."""
    store = Store()
    for item in items:
        store.observe(item)
    return store


def run(*nodes: str, ident: str = "c1", saves: int | None = None) -> Run:
    """Return a cost command for these nodes, each `pool/node` or a `node` of the pool web."""
    pairs = [node.rpartition("/")[::2] for node in nodes]
    candidates = tuple(Candidate(node=name, claim=name, uid=name, pool=of or "web") for of, name in pairs)
    made = Run(
        id=ident,
        action=Action.DELETE_COST,
        method=Method.SINGLE_NODE,
        candidates=candidates,
        phase=Phase.DELETING,
        began=NOW,
    )
    if saves is not None:
        names_of = tuple(name for _, name in pairs)
        made.command = Command(action=Action.DELETE_COST, method=Method.SINGLE_NODE, nodes=names_of, savings=saves)
    return made
