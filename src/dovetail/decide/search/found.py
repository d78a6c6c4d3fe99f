"""What a search found, as a value. Sits in decide, below the search."""

from collections.abc import Mapping

import msgspec

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.methods.method import SetAside
from dovetail.decide.methods.moves import Move
from dovetail.decide.refusal import Refusal
from dovetail.model.verdicts import GateResult

Tried = tuple[tuple[NodeFacts, ...], Refusal]
"""A set of nodes that was judged and refused."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found: the best move, if any; what budgets held back; what was refused, and what is set aside."""

    move: Move | None
    held: Mapping[str, GateResult]
    refused: tuple[Tried, ...]
    aside: tuple[SetAside, ...] = ()
