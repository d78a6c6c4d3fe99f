"""Variants: what a class of pods requires at each step of its relaxation, compiled for one snapshot.

The first variant treats every preference as required; `after` returns the next one. A variant knows the nodes on which
its pods would fit in the untouched snapshot, bucketed by the other topology domains that matter to it. That is an upper
bound for every simulation, in which free room only shrinks and host names only fill. Knows nothing of a simulation's
overlay.
"""

from typing import TYPE_CHECKING
from weakref import ref

import numpy as np
import numpy.typing as npt

from dovetail.model.labels.requirements import Requirement, Requirements
from dovetail.model.objects import PodSpec
from dovetail.scheduling.launch.machines import Mask, ReqSet
from dovetail.scheduling.pods.classes import PodClass
from dovetail.scheduling.pods.pod import tolerates
from dovetail.scheduling.pods.relax import relaxed
from dovetail.scheduling.pods.terms import lasting
from dovetail.scheduling.topology.groups import AFFINITY, SPREAD, Group

if TYPE_CHECKING:
    from dovetail.scheduling.frame import Frame

_FIRST = 32
NEEDS_DEVICES = "it has resource claims, and nobody can say where their devices would be allocated"


class Rule:
    """A group as it applies to one variant: whether the pod counts itself, and the domains that it may use."""

    __slots__ = ("allowed", "group", "own")

    def __init__(self, group: Group, cls: PodClass, strict: Requirements) -> None:
        self.group = group
        self.own = 1 if group.selects(cls.namespace, cls.labels) else 0
        self.allowed: Requirement | None = strict.get(group.key)


class NodeList(list[int]):
    """Nodes in order, loaded on demand: of thousands, the first few are usually enough."""

    __slots__ = ("all",)

    def __init__(self, nodes: npt.NDArray[np.int64]) -> None:
        super().__init__(nodes[:_FIRST].tolist())
        self.all = nodes

    def grow(self) -> bool:
        """Load more of them; return False if all are loaded."""
        there = len(self)
        self.extend(self.all[there : 4 * there].tolist())
        return len(self) > there


class Variant:
    """One step of a class's relaxation."""

    __slots__ = (
        "_after",
        "_buckets",
        "_frame",
        "_mask",
        "_templates",
        "alternatives",
        "asks",
        "attached",
        "cls",
        "given_up",
        "host_affinity",
        "host_rules",
        "id",
        "keys",
        "like",
        "lost",
        "need",
        "owned",
        "ports",
        "reqs",
        "rules",
        "simple",
        "spec",
        "steady",
        "strict",
        "tolerations",
        "zone_rules",
    )

    def __init__(self, frame: "Frame", number: int, cls: PodClass, spec: PodSpec, given_up: tuple[str, ...]) -> None:
        self._frame = ref(frame)
        self.id = number
        self.cls = cls
        self.spec = spec
        self.given_up = given_up
        self.need = cls.info.need
        self.ports = cls.info.ports
        self.tolerations = spec.tolerations
        terms = frame.terms.of(cls, spec, len(given_up))
        self.strict: Requirements = terms.strict
        self.reqs: ReqSet = terms.reqs
        volumes = frame.volume_needs(cls)
        self.alternatives: tuple[ReqSet, ...] = tuple(frame.machines.intern(r) for r in volumes.alternatives)
        self.attached = volumes.attached
        self.lost = NEEDS_DEVICES if cls.info.claims else volumes.lost
        self.owned: list[Group] = list(map(frame.group, terms.rules))
        self._compile_rules(frame)
        self.steady = terms.lasting and self._is_steady(frame)
        # It needs only labels, tolerated taints and room: other pods don't matter to it.
        self.simple = not (self.lost or self.rules or self.ports or self.attached)
        # The number of the first variant that asks the same, and so is refused by the same nodes.
        self.like: int = self._first_alike().id
        self._mask: Mask | None = None
        self._buckets: list[tuple[tuple[int, ...], NodeList]] | None = None
        self._templates: list[bool] | None = None
        self._after: Variant | bool = True
        self.asks = (self.reqs.id, self.tolerations, tuple(group.id for group in self.owned))

    @property
    def frame(self) -> "Frame":
        """Return the frame that holds it; a strong reference back would keep both until the garbage collector runs."""
        frame = self._frame()
        assert frame is not None
        return frame

    def _compile_rules(self, frame: "Frame") -> None:
        inverse = frame.inverse_of(self.cls)
        self.rules = [Rule(group, self.cls, self.strict) for group in (*self.owned, *inverse)]
        self.host_affinity = [r for r in self.rules if r.group.host and r.group.kind == AFFINITY]
        self.host_rules = [r for r in self.rules if r.group.host and r.group.kind != AFFINITY]
        self.zone_rules = [r for r in self.rules if not r.group.host]
        self.keys: tuple[str, ...] = tuple(sorted({r.group.key for r in self.zone_rules}))

    def _is_steady(self, frame: "Frame") -> bool:
        """Return whether a pod that finds no place finds none later in the same simulation either.

        Free room only shrinks and hosts only fill. But domains may open, affinity may find matching pods, and a new
        node may seem to have a label once a pod that forbids a value of it has joined (`Terms.lasting`).
        """
        if self.zone_rules or self.host_affinity:
            return False
        return all(lasting(reqs, frame.machines) for reqs in self.alternatives)

    @property
    def after(self) -> "Variant | None":
        """Return the variant after one more preference is given up; steps that change nothing are skipped."""
        if self._after is True:
            self._after = self._relax() or False
        return self._after or None  # type: ignore[return-value]

    def _relax(self) -> "Variant | None":
        spec, given_up = self.spec, self.given_up
        while (step := relaxed(spec, tolerate_prefer_no_schedule=self.frame.soft_taints)) is not None:
            spec, what = step
            given_up = (*given_up, what)
            softer = self.frame.variant(self.cls, spec, given_up)
            if softer.asks != self.asks:
                return softer
        return None

    @property
    def templates(self) -> list[bool]:
        """Return whether each template's taints are tolerated."""
        if self._templates is None:
            self._templates = [tolerates(self.tolerations, t.taints) for t in self.frame.templates]
        return self._templates

    @property
    def static(self) -> Mask:
        """Return the nodes that labels, taints and volumes allow, ignoring room and other pods."""
        columns = self.frame.columns
        mask = columns.meets(self.reqs.reqs) & columns.tolerated(self.tolerations)
        if self.alternatives:
            either = np.zeros(columns.count, dtype=np.bool_)
            for alternative in self.alternatives:
                either |= columns.meets(alternative.reqs)
            mask = mask & either
        return mask

    @property
    def mask(self) -> Mask:
        """Return the nodes that take a pod of this variant in the untouched snapshot.

        A simulation only removes some.
        """
        if self._mask is None:
            first = self._first_alike()
            self._mask = self._find_nodes() if first is self else first.mask
        return self._mask

    def _first_alike(self) -> "Variant":
        """Return a variant that takes the same nodes: of those that need only labels, taints and room, the first."""
        return self.frame.alike.setdefault(self._asked, self) if self.simple else self

    @property
    def _asked(self) -> tuple[object, ...]:
        """Return the labels, taints and room that it asks for."""
        return self.reqs.id, self.tolerations, self.need, tuple([reqs.id for reqs in self.alternatives])

    def _fitting(self) -> Mask:
        """Return the nodes that have these, whether they stay or not; frames in which others leave have the same."""
        frame, key = self.frame, self._asked
        found = frame.fitting.get(key)
        if found is None:
            found = self.static
            for column, amount in self.need:
                found = found & (frame.room[:, column] >= amount)
            frame.fitting[key] = found
        return found

    def _find_nodes(self) -> Mask:
        frame = self.frame
        mask: Mask = frame.open & self._fitting()
        if (self.ports or self.attached) and mask.any():
            frame.strike_ports(self.ports, mask)
            frame.strike_volumes(self.attached, mask)
        for rule in self.host_rules:
            group = rule.group
            limit = group.max_skew - rule.own if group.kind == SPREAD else 0
            mask &= group.per_node <= limit
        return mask

    @property
    def buckets(self) -> list[tuple[tuple[int, ...], "NodeList"]]:
        """Return the nodes of `mask` by their domains of the variant's topology keys, each list in order."""
        if self._buckets is None:
            first = self._first_alike()
            self._buckets = self._sort_nodes() if first is self else first.buckets
        return self._buckets

    def _sort_nodes(self) -> list[tuple[tuple[int, ...], "NodeList"]]:
        mask = self.mask
        if self.keys:
            parts = [(places, part[mask[part]]) for places, part in self.frame.parts(self.keys)]
        else:
            parts = [((), np.flatnonzero(mask))]
        return [(places, NodeList(nodes)) for places, nodes in parts if len(nodes)]
