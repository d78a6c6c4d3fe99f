"""The columns of the simulated kube-scheduler's table as values, and what names them.

Each array has one number per row of `sim.world.placement.nodetable`, which keeps them up to date. Decides nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dovetail.model.objects import LabelSelectorSpec, PodAffinityTerm
from dovetail.sim.world.placement.shapes import PodShape

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
GroupKey = tuple[object, ...]


def selector_key(namespaces: tuple[str, ...] | None, selector: LabelSelectorSpec) -> GroupKey:
    """Return a value that is the same for selectors that say the same."""
    labels = tuple(sorted(selector.match_labels.items()))
    entries = tuple((entry.key, entry.operator, entry.values) for entry in selector.match_expressions)
    return (namespaces, labels, entries)


@dataclass(slots=True, eq=False)
class NodeGroup:
    """Pods that a selector picks (or that carry a term), counted per node: all, and those not terminating.

    `sums`: those not terminating per domain, by label key, for the keys that were asked for.
    """

    picks: Callable[[PodShape], bool]
    every: Ints
    active: Ints
    sums: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ShapeColumns:
    """What nodes are to one kind of pod, by row.

    `open`: the node fits, admits the pod and has room for it. `requests` and `scoring`: CPU and memory of one pod, as
    rows of the table's columns. `fitting`: how many nodes fit. `seen` and `seen_room`: how far the table's logs have
    been followed.
    """

    fits: Bools
    admitted: Bools
    open: Bools
    shunned: Ints
    liked: Ints
    requests: Ints
    scoring: Ints
    fitting: int = 0
    seen: int = 0
    seen_room: int = 0


@dataclass(slots=True)
class Row:
    """A bound pod: its shape, its row, and whether it is not terminating."""

    shape: PodShape
    row: int
    active: bool


@dataclass(slots=True, eq=False)
class Topology:
    """The domain of each node under one label key, as a number (-1: the node has no such label)."""

    domain: Ints
    numbers: dict[str, int] = field(default_factory=dict)


def with_label_keys(selector: LabelSelectorSpec | None, keys: tuple[str, ...], shape: PodShape) -> LabelSelectorSpec:
    """Return the selector with the pod's own values of `matchLabelKeys` in it."""
    selector = selector or LabelSelectorSpec()
    own = {key: shape.labels[key] for key in keys if key in shape.labels}
    if not own:
        return selector
    labels = {**selector.match_labels, **own}
    return LabelSelectorSpec(match_labels=labels, match_expressions=selector.match_expressions)


def term_namespaces(shape: PodShape, term: PodAffinityTerm) -> tuple[str, ...] | None:
    """Return the namespaces of an affinity term: an empty namespace selector means all of them."""
    if term.namespace_selector is not None:
        return None
    return tuple(sorted(term.namespaces)) or (shape.namespace,)
