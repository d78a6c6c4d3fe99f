"""What every gate's rule gets besides the node, and the results that it returns.

Sits in decide, below the rules.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache

import msgspec

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.vetoes import Vetoes
from dovetail.model.objects import Pod
from dovetail.model.settings import Settings
from dovetail.model.verdicts import Figure, Gate, GateResult


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


@lru_cache(maxsize=256)
def passed(gate: Gate, why: str) -> GateResult:
    """Return the result of a gate that a node passed without figures; the same object for all nodes."""
    return GateResult(gate=gate, passed=True, why=why)


def stopped(gate: Gate, why: str, **figures: Figure) -> GateResult:
    """Return the result of a gate that a node stopped at."""
    return GateResult(gate=gate, passed=False, why=why, figures=figures)


def pod_name(pod: Pod) -> str:
    """Return `namespace/name`."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


Rule = Callable[[NodeFacts, GateContext], GateResult]
