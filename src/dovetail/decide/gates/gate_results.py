"""The form of every rule of gates 1 to 7: its gate, until when it is closed for a node, and why.

A rule does not say yes or no but until when it is closed. So the table (`table`) computes it once for each node and
compares it with the clock from then on, and the sentences (`candidates`) follow from the same answer. Sits in decide,
below the rules.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.vetoes import Vetoes
from dovetail.model.settings import Settings
from dovetail.model.timing.duration import END_OF_TIME
from dovetail.model.verdicts import Figure, Gate, GateResult

NEVER: Final = END_OF_TIME
"""A gate that is closed until then does not open by time."""


class GateContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules know besides the node: settings, the time, and which pools are managed (None: all).

    `buffered`: how many virtual pods of buffers each node holds, by name. `vetoes`: what PDBs refuse now (None:
    nothing).
    """

    settings: Settings
    now: datetime
    managed_pools: frozenset[str] | None = None
    may_surge: bool = True
    buffered: Mapping[str, int] = msgspec.field(default_factory=dict)
    vetoes: Vetoes | None = None

    def manages(self, pool: str) -> bool:
        """Return whether Dovetail may act on a pool."""
        return self.managed_pools is None or pool in self.managed_pools


class Said(NamedTuple):
    """A sentence and the numbers behind it."""

    why: str
    figures: Mapping[str, Figure]


def said(why: str, **figures: Figure) -> Said:
    """Return a sentence with its numbers."""
    return Said(why, figures)


ClosedUntil = Callable[[NodeFacts, GateContext], datetime | bool | None]
"""Returns until when a gate is closed for a node; True: it does not open by time; None or False: it is open.

Depends only on the facts, the settings, the managed pools and `may_surge`, because the answer is kept while these stay
the same. Three rules differ, and the table knows them: pods' windows (which recur), PDBs and buffers (asked in every
round).
"""
Sentence = Callable[[NodeFacts, GateContext], Said]


class GateRule(msgspec.Struct, frozen=True, eq=False):
    """One gate: until when it is closed, why it is closed, and what is said of a node that passes."""

    gate: Gate
    closed_until: ClosedUntil
    why: Sentence
    passes: GateResult | Sentence

    def is_closed(self, facts: NodeFacts, gate_context: GateContext) -> bool:
        """Return whether the gate is closed for a node now."""
        until = self.closed_until(facts, gate_context)
        return until is True or (isinstance(until, datetime) and gate_context.now < until)

    def __call__(self, facts: NodeFacts, gate_context: GateContext) -> GateResult:
        """Return the result of the gate now, with its sentence."""
        return self.result(facts, gate_context, closed=self.is_closed(facts, gate_context))

    def result(self, facts: NodeFacts, gate_context: GateContext, *, closed: bool) -> GateResult:
        """As above, if it is known whether the gate is closed."""
        if closed:
            why, figures = self.why(facts, gate_context)
            return GateResult(gate=self.gate, passed=False, why=why, figures=figures)
        if isinstance(self.passes, GateResult):
            return self.passes
        why, figures = self.passes(facts, gate_context)
        return GateResult(gate=self.gate, passed=True, why=why, figures=figures) if figures else passed(self.gate, why)


def rule(gate: Gate, closed_until: ClosedUntil, passes: str | Sentence) -> Callable[[Sentence], GateRule]:
    """Make a rule of the function that returns why its gate is closed."""
    always = passed(gate, passes) if isinstance(passes, str) else passes
    return lambda why: GateRule(gate, closed_until, why, always)


@lru_cache(maxsize=256)
def passed(gate: Gate, why: str) -> GateResult:
    """Return the result of a gate that a node passed without figures; the same object for all nodes."""
    return GateResult(gate=gate, passed=True, why=why)


def stopped(gate: Gate, why: str, **figures: Figure) -> GateResult:
    """Return the result of a gate that a node stopped at."""
    return GateResult(gate=gate, passed=False, why=why, figures=figures)
