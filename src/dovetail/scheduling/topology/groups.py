"""Topology groups: pods counted per domain of a label, for spread, affinity and anti-affinity.

A group is one rule (kind, label, which pods it counts). Its base holds the counts of the cluster without the pods that
move in every simulation; a `GroupState` is the overlay of one simulation: minus the candidates' pods, plus placed pods.
Domains of a label are numbered in the order of their names, so ties are broken by name. Host names are special, as in
Karpenter: the minimum is always 0, since a new node can be opened; they are counted per node.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from dovetail.model import names
from dovetail.model.labels.requirements import Requirements
from dovetail.model.labels.selectors import LabelSelector
from dovetail.model.objects import NodePool, Taint, Toleration
from dovetail.scheduling.columns import Codes, NodeColumns
from dovetail.scheduling.launch.machines import Machines, Mask
from dovetail.scheduling.pods.pod import tolerates

SPREAD: Final = 0
AFFINITY: Final = 1
ANTI_AFFINITY: Final = 2
INVERSE: Final = 3


class NodeFilter:
    """Which nodes count for a spread: those that the pod could use, unless its policies say otherwise."""

    __slots__ = ("honor_affinity", "honor_taints", "terms", "tolerations")

    def __init__(
        self,
        terms: tuple[Requirements, ...],
        tolerations: tuple[Toleration, ...],
        *,
        honor_affinity: bool,
        honor_taints: bool,
    ) -> None:
        self.terms = terms
        self.tolerations = tolerations
        self.honor_affinity = honor_affinity
        self.honor_taints = honor_taints

    @property
    def identity(self) -> tuple[object, ...]:
        """Return a key that is equal for equal filters."""
        tolerated = frozenset((t.key, t.operator, t.value, t.effect) for t in self.tolerations)
        return (frozenset(self.terms), tolerated, self.honor_affinity, self.honor_taints)

    @property
    def text(self) -> str:
        """Return the filter as text; the same for equal filters, in whatever order they appeared."""
        tolerated = sorted({(t.key, t.operator, t.value, t.effect) for t in self.tolerations})
        terms = sorted({str(term.to_spec()) for term in self.terms})
        return f"{terms}/{tolerated}/{self.honor_affinity}/{self.honor_taints}"

    def nodes(self, columns: NodeColumns, *, raw: bool) -> Mask | None:
        """Return the nodes that count; None: all. `raw`: including taints that go away while a node starts."""
        mask: Mask | None = None
        if self.honor_affinity and any(len(term) for term in self.terms):
            mask = np.zeros(columns.count, dtype=np.bool_)
            for term in self.terms:
                mask = mask | columns.meets(term)
        if self.honor_taints:
            tolerated = columns.tolerated(self.tolerations, raw=raw)
            mask = tolerated if mask is None else mask & tolerated
        return mask

    def claims(self, taints: tuple[Taint, ...], reqs: Requirements) -> bool:
        """Return whether a new node with these requirements counts."""
        if self.honor_affinity and self.terms and not any(reqs.is_compatible(term) for term in self.terms):
            return False
        return not self.honor_taints or tolerates(self.tolerations, taints)


class Domains:
    """The domains of a label: those of nodes and those that pools could open, numbered by name, or as `ties` says.

    `column` and `places`: the number of each node's domain, as an array and as plain numbers; -1: it has none.
    """

    __slots__ = ("_openable", "column", "key", "names", "place", "places", "taints")

    def __init__(
        self,
        key: str,
        columns: NodeColumns,
        universe: Mapping[str, list[tuple[Taint, ...]]],
        mentioned: Iterable[str] = (),
        ties: int = 0,
    ) -> None:
        """Start with the known domains.

        `mentioned`: values that only pods request; they become domains once a pod is placed there.
        """
        self.key = key
        values, codes = columns.labels(key)
        self.names: list[str] = sorted({*values, *universe, *mentioned})
        if ties:
            from hashlib import sha256  # few runs need it

            self.names.sort(key=lambda name: sha256(f"{ties}/{name}".encode()).digest())
        self.place: dict[str, int] = {name: i for i, name in enumerate(self.names)}
        recode = np.array([*(self.place[value] for value in values), -1], dtype=np.int32)
        self.column: Codes = recode[codes]
        self.places: list[int] = self.column.tolist()
        self.taints = universe
        self._openable: dict[tuple[Toleration, ...] | None, list[int]] = {}

    def openable(self, tolerations: tuple[Toleration, ...] | None) -> list[int]:
        """Return domains that new nodes could be in; with tolerations, only those behind taints that are tolerated."""
        found = self._openable.get(tolerations)
        if found is None:
            found = self._openable[tolerations] = [
                self.place[name]
                for name, sets in self.taints.items()
                if tolerations is None or any(tolerates(tolerations, taints) for taints in sets)
            ]
        return found


def domain_universe(key: str, pools: Sequence[NodePool], machines: Machines) -> dict[str, list[tuple[Taint, ...]]]:
    """Return the values of a label that pools and their types could give a node, with the taints of each."""
    found: dict[str, list[tuple[Taint, ...]]] = {}

    def insert(values: Iterable[str], taints: tuple[Taint, ...]) -> None:
        for value in values:
            sets = found.get(value)
            if sets is None or not taints:
                found[value] = [taints]
            elif sets[0]:
                sets.append(taints)

    for pool in pools:
        template = pool.spec.template
        own = Requirements.from_spec(template.spec.requirements).union(
            Requirements.from_labels(template.metadata.labels)
        )
        mine = own.get(key)
        seen: set[frozenset[str]] = set()
        for _, theirs in machines.by_key.get(key, ()):
            both = theirs if mine is None else theirs.intersection(mine)
            if both.values not in seen:
                seen.add(both.values)
                insert(sorted(both.values), template.spec.taints)
        if mine is not None and (len(machines.by_key.get(key, ())) < len(machines.kinds) or mine.operator() == "In"):
            insert(sorted(mine.values), template.spec.taints)
    return found


class TopologyRule(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One topology rule: kind, label (`key`), which pods it counts (`namespaces`, `selector`), and its bounds.

    `null_selector`: no selector was given; the base is all pods, and placed ones are not added. `tolerations`: taints
    that a domain's nodes may have, where no node filter says so.
    """

    kind: int
    key: str
    namespaces: frozenset[str]
    selector: LabelSelector
    null_selector: bool = False
    max_skew: int = 0
    min_domains: int | None = None
    node_filter: NodeFilter | None = None
    tolerations: tuple[Toleration, ...] | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """Return a key that is equal for equal rules."""
        return (
            self.kind,
            self.key,
            self.namespaces,
            self.selector,
            self.null_selector,
            self.max_skew,
            self.min_domains,
            self.node_filter.identity if self.node_filter is not None else None,
            self.tolerations,
        )


class Group:
    """One topology rule with its base counts. Compare by identity.

    `classes`: the classes whose pods count; for another pod's anti-affinity, the classes that have it. `based_on`: the
    classes in the base counts; a rule without selector starts from all pods and adds none.
    """

    __slots__ = (
        "_text",
        "based_on",
        "classes",
        "counts",
        "domains",
        "elsewhere",
        "filter",
        "host",
        "id",
        "key",
        "kind",
        "max_skew",
        "min_domains",
        "namespaces",
        "nodes",
        "nodes_in",
        "nodes_later",
        "openable",
        "per_node",
        "selector",
    )

    def __init__(self, number: int, rule: TopologyRule) -> None:
        self.id = number
        self._text = ""
        self.kind = rule.kind
        self.key = rule.key
        self.host = rule.key == names.HOSTNAME
        self.namespaces = rule.namespaces
        self.selector = rule.selector
        self.max_skew = rule.max_skew
        self.min_domains = rule.min_domains
        self.filter = rule.node_filter
        self.classes: set[int] = set()
        self.based_on: set[int] = self.classes
        self.nodes: Mask | None = None
        self.nodes_later: Mask | None = None
        self.domains: Domains | None = None
        self.counts: list[int] = []
        self.elsewhere = 0
        self.nodes_in: list[int] = []
        self.openable: list[bool] = []
        self.per_node: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    @property
    def text(self) -> str:
        """Return the rule as text. Unlike `id` it doesn't depend on which rules came before this one."""
        if not self._text:
            chosen = self.selector
            asked = [(key, wanted, sorted(values), missing) for key, wanted, values, missing in chosen.expressions]
            whom = f"{sorted(self.namespaces)}/{chosen.equal}/{asked}/{chosen.nothing}"
            nodes = self.filter.text if self.filter is not None else ""
            self._text = f"{self.kind}/{self.key}/{whom}/{self.max_skew}/{self.min_domains}/{nodes}"
        return self._text

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether it counts a pod."""
        return namespace in self.namespaces and self.selector.matches(labels)

    def fill(
        self,
        columns: NodeColumns,
        domains: Domains,
        openable: list[int],
        at: npt.NDArray[np.int64],
        present: Mask | None,
    ) -> None:
        """Count the pods whose nodes are in `at`; `present`: nodes whose domains exist because of them."""
        self.domains = domains
        if self.filter is not None:
            # Running pods count by the taints that exist now, placed pods by the taints that will stay.
            self.nodes = self.filter.nodes(columns, raw=True)
            self.nodes_later = self.filter.nodes(columns, raw=False)
            if self.nodes is not None:
                at = at[self.nodes[at]]
                present = None if present is None else present & self.nodes
        if self.host:
            known = ~columns.renamed[at]
            self.elsewhere = len(at) - int(known.sum())
            self.per_node = np.bincount(at[known], minlength=columns.count)
            return
        size = len(domains.names)
        where = domains.column[at]
        self.counts = np.bincount(where[where >= 0], minlength=size).tolist()
        if present is None:
            self.nodes_in = [0] * size
        else:
            here = domains.column[present]
            self.nodes_in = np.bincount(here[here >= 0], minlength=size).tolist()
        self.openable = [False] * size
        for place in openable:
            self.openable[place] = True

    def takes_part(self, node: int) -> bool:
        """Return whether pods running on this node count."""
        return self.nodes is None or bool(self.nodes[node])

    def will_count(self, node: int) -> bool:
        """Return whether a pod placed on this node counts."""
        return self.nodes_later is None or bool(self.nodes_later[node])
