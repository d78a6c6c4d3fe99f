"""Topology groups: pods counted per domain of a label, for spread, affinity and anti-affinity.

A group is one rule (kind, label, whom it counts). Its base holds the counts of the cluster without the pods that move
in every simulation; a `GroupState` is the overlay of one simulation: what the candidates take away, what placed pods
add. Domains of a label are numbered in the order of their names, so that ties go by name. Host names are special, as
in Karpenter: the least loaded host is always an empty one, since a new node can be opened; they are counted per node.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.model import names
from dovetail.model.labels import LabelSelector, Requirement, Requirements
from dovetail.model.objects import NodePool, Taint, Toleration
from dovetail.scheduling.columns import Codes, NodeColumns
from dovetail.scheduling.launch.machines import Machines, Mask
from dovetail.scheduling.pods.pod import tolerates

SPREAD: Final = 0
AFFINITY: Final = 1
ANTI_AFFINITY: Final = 2
INVERSE: Final = 3


class NodeFilter:
    """Which nodes take part in a spread: those that the pod could use, unless its policies say otherwise."""

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
    def mark(self) -> tuple[object, ...]:
        """Equal for equal filters."""
        tolerated = frozenset((t.key, t.operator, t.value, t.effect) for t in self.tolerations)
        return (frozenset(self.terms), tolerated, self.honor_affinity, self.honor_taints)

    @property
    def text(self) -> str:
        """Return the filter in words; the same for equal filters, in whatever order they were met."""
        tolerated = sorted({(t.key, t.operator, t.value, t.effect) for t in self.tolerations})
        terms = sorted({str(term.to_spec()) for term in self.terms})
        return f"{terms}/{tolerated}/{self.honor_affinity}/{self.honor_taints}"

    def nodes(self, columns: NodeColumns, *, raw: bool) -> Mask | None:
        """Return the nodes that take part; None: all. `raw`: with taints that pass while a node starts."""
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
        """Return whether a new node with these requirements takes part."""
        if self.honor_affinity and self.terms and not any(reqs.is_compatible(term) for term in self.terms):
            return False
        return not self.honor_taints or tolerates(self.tolerations, taints)


class Domains:
    """The domains of a label: those of nodes and those that pools could open, numbered by name, or as `ties` says."""

    __slots__ = ("column", "key", "names", "place", "taints")

    def __init__(
        self,
        key: str,
        columns: NodeColumns,
        universe: Mapping[str, list[tuple[Taint, ...]]],
        mentioned: Iterable[str] = (),
        ties: int = 0,
    ) -> None:
        """`mentioned`: values that only pods ask for; such a domain exists once a pod is placed there."""
        self.key = key
        values, codes = columns.labels(key)
        self.names: list[str] = sorted({*values, *universe, *mentioned})
        if ties:
            self.names.sort(key=lambda name: sha256(f"{ties}/{name}".encode()).digest())
        self.place: dict[str, int] = {name: i for i, name in enumerate(self.names)}
        recode = np.array([*(self.place[value] for value in values), -1], dtype=np.int32)
        self.column: Codes = recode[codes]
        self.taints = universe

    def openable(self, tolerations: tuple[Toleration, ...] | None) -> list[int]:
        """Domains that new nodes could be in; with tolerations, only those behind taints that are tolerated."""
        return [
            self.place[name]
            for name, sets in self.taints.items()
            if tolerations is None or any(tolerates(tolerations, taints) for taints in sets)
        ]


def domain_universe(key: str, pools: Sequence[NodePool], machines: Machines) -> dict[str, list[tuple[Taint, ...]]]:
    """The values of a label that pools and their types could give a node, with the taints that stand before each."""
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


class Group:
    """One topology rule with its base counts. Compare by identity.

    `classes`: whose pods count; for another pod's anti-affinity, whose pods hold it. `based_on`: whose pods are in the
    base counts; a rule without selector starts from all pods and adds none.
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

    def __init__(
        self,
        number: int,
        kind: int,
        key: str,
        namespaces: frozenset[str],
        selector: LabelSelector,
        *,
        max_skew: int = 0,
        min_domains: int | None = None,
        node_filter: NodeFilter | None = None,
    ) -> None:
        self.id = number
        self._text = ""
        self.kind = kind
        self.key = key
        self.host = key == names.HOSTNAME
        self.namespaces = namespaces
        self.selector = selector
        self.max_skew = max_skew
        self.min_domains = min_domains
        self.filter = node_filter
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
        """Return the rule in words. Unlike `id` it doesn't depend on which rules were met before this one."""
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
            # Pods that run count by the taints that are there, pods that are placed by those that will stay.
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
        """Return whether pods that run on this node count."""
        return self.nodes is None or bool(self.nodes[node])

    def will_count(self, node: int) -> bool:
        """Return whether a pod that is placed on this node counts."""
        return self.nodes_later is None or bool(self.nodes_later[node])


class GroupState:
    """A group in one simulation."""

    __slots__ = ("counts", "draws", "extra", "group", "less", "nodes_in", "on_claims", "salt", "version")

    def __init__(self, group: Group, salt: str = "") -> None:
        self.group = group
        self.salt = salt
        self.draws = 0
        self.version = 0
        self.counts = list(group.counts)
        self.nodes_in = group.nodes_in
        self.less: dict[int, int] = {}
        self.extra: dict[int, int] = {}
        self.on_claims: dict[int, int] = {}

    def forget_node(self, node: int) -> None:
        """A node goes away: its domain may go with it."""
        group = self.group
        if group.host or group.domains is None or not group.takes_part(node):
            return
        place = int(group.domains.column[node])
        if place >= 0 and group.nodes_in[place] > 0:
            if self.nodes_in is group.nodes_in:
                self.nodes_in = list(group.nodes_in)
            self.nodes_in[place] -= 1

    def forget_pod(self, node: int) -> None:
        """A pod that counted on this node moves."""
        group = self.group
        if not group.takes_part(node):
            return
        if group.host:
            self.less[node] = self.less.get(node, 0) + 1
            return
        assert group.domains is not None
        place = int(group.domains.column[node])
        if place >= 0:
            self.counts[place] -= 1

    def record_node(self, node: int) -> None:
        """A pod that counts is placed on a node that exists."""
        group = self.group
        self.version += 1
        if group.host:
            self.extra[node] = self.extra.get(node, 0) + 1
            return
        assert group.domains is not None
        place = int(group.domains.column[node])
        if place >= 0:
            self.counts[place] += 1

    def record_claim(self, claim: int, entry: Requirement | None) -> None:
        """A pod that counts is placed on a new node, whose requirement on the label is `entry`."""
        group = self.group
        self.version += 1
        if group.host:
            self.on_claims[claim] = self.on_claims.get(claim, 0) + 1
            return
        if entry is None:
            return
        if group.kind in (SPREAD, AFFINITY) and (entry.complement or len(entry.values) != 1):
            return
        assert group.domains is not None
        for value in entry.values:
            place = group.domains.place.get(value)
            if place is not None:
                self.counts[place] += 1

    def at_node(self, node: int) -> int:
        """Pods counted on a node (host names only)."""
        return int(self.group.per_node[node]) - self.less.get(node, 0) + self.extra.get(node, 0)

    def present(self, place: int) -> bool:
        """Return whether a domain exists."""
        return self.group.openable[place] or self.nodes_in[place] > 0 or self.counts[place] > 0

    def least(self, allowed: Requirement | None) -> int:
        """Return the smallest count over the domains that the pod's own requirements allow."""
        group = self.group
        assert group.domains is not None
        smallest = 2**31 - 1
        seen = 0
        for place, name in enumerate(group.domains.names):
            if self.present(place) and (allowed is None or allowed.has(name)):
                seen += 1
                smallest = min(smallest, self.counts[place])
        if group.min_domains is not None and seen < group.min_domains:
            return 0
        return smallest

    def open_domains(self, allowed: Requirement | None, own: int) -> int:
        """Return the domains, as bits, in which a node that exists may take the pod. `own`: the pod counts itself."""
        group = self.group
        assert group.domains is not None
        found = 0
        if group.kind == SPREAD:
            limit = self.least(allowed) + group.max_skew - own
            for place, count in enumerate(self.counts):
                if count <= limit and self.present(place):
                    found |= 1 << place
            return found
        if group.kind == AFFINITY:
            if self.bootstraps(allowed, own):
                for place, name in enumerate(group.domains.names):
                    if self.present(place) and (allowed is None or allowed.has(name)):
                        found |= 1 << place
                return found
            for place, count in enumerate(self.counts):
                if count > 0 and (allowed is None or allowed.has(group.domains.names[place])):
                    found |= 1 << place
            return found
        for place, count in enumerate(self.counts):
            if count == 0 and self.present(place) and (allowed is None or allowed.has(group.domains.names[place])):
                found |= 1 << place
        return found

    def bootstraps(self, allowed: Requirement | None, own: int) -> bool:
        """Return whether the pod is the first of its affinity: it counts itself, and no domain it may use has one."""
        if not own:
            return False
        group = self.group
        assert group.domains is not None
        if group.host:
            return not self.any_host(allowed)
        return not any(
            count > 0 and (allowed is None or allowed.has(group.domains.names[place]))
            for place, count in enumerate(self.counts)
        )

    def any_host(self, allowed: Requirement | None) -> bool:
        """Return whether some host that the pod may use has a counted pod."""
        if self.group.elsewhere or self.on_claims or any(count > 0 for count in self.extra.values()):
            return True
        return any(self.at_node(node) > 0 for node in self.hosts(allowed))

    def hosts(self, allowed: Requirement | None) -> list[int]:
        """Nodes with a counted pod, in order, that the pod's own requirements allow."""
        group = self.group
        nodes = {int(node) for node in np.flatnonzero(group.per_node)} | set(self.extra)
        found = sorted(node for node in nodes if self.at_node(node) > 0)
        if allowed is None or group.domains is None:
            return found
        texts = group.domains.names
        column = group.domains.column
        return [node for node in found if allowed.has(texts[int(column[node])])]

    def claim_domains(
        self, claim: int, allowed: Requirement | None, given: Requirement | None, own: int
    ) -> Requirement | None:
        """The domains that a new node may be narrowed to for this pod; None: nothing more is asked. Empty: no way.

        `allowed`: the pod's own requirement on the label; `given`: the node's so far.
        """
        group = self.group
        if group.host:
            return None if self._host_takes(claim, allowed, own) else Requirement(key=group.key)
        assert group.domains is not None
        if group.kind == SPREAD:
            return self._spread_domain(allowed, given, own)
        places = [
            place
            for place, name in enumerate(group.domains.names)
            if (given is None or given.has(name)) and (allowed is None or allowed.has(name))
        ]
        texts = group.domains.names
        if group.kind != AFFINITY:
            empty = [texts[p] for p in places if self.counts[p] == 0 and self.present(p)]
            return Requirement(key=group.key, values=frozenset(empty))
        full = [texts[p] for p in places if self.counts[p] > 0]
        if not full and self.bootstraps(allowed, own):
            here = [p for p in range(len(texts)) if self.present(p)]
            first = [p for p in here if p in places][:1]
            viable = [p for p in here if allowed is None or allowed.has(texts[p])][:1]
            full = [texts[p] for p in (*first, *viable)]
        return Requirement(key=group.key, values=frozenset(full))

    def _spread_domain(self, allowed: Requirement | None, given: Requirement | None, own: int) -> Requirement:
        group = self.group
        assert group.domains is not None
        limit = self.least(allowed) + group.max_skew - own
        best: list[int] = []
        for place, count in enumerate(self.counts):
            if (
                count <= limit
                and (not best or count <= self.counts[best[0]])
                and self.present(place)
                and (given is None or given.has(group.domains.names[place]))
            ):
                if best and count < self.counts[best[0]]:
                    best.clear()
                best.append(place)
        chosen = frozenset((group.domains.names[best[self._draw(len(best))]],)) if best else frozenset()
        return Requirement(key=group.key, values=chosen)

    def _draw(self, count: int) -> int:
        """Return which of several equal domains: the first by name or, with a salt, any, anew for every pod.

        The rule goes in by its words, not its number: a number says what was simulated before on the same snapshot.
        """
        if count == 1 or not self.salt:
            return 0
        self.draws += 1
        drawn = sha256(f"{self.salt}/{self.group.text}/{self.draws}".encode()).digest()
        return int.from_bytes(drawn[:8]) % count

    def _host_takes(self, claim: int, allowed: Requirement | None, own: int) -> bool:
        """Whether the host name of a new node will do. A pod that asks for other host names never gets this far."""
        count = self.on_claims.get(claim, 0)
        if self.group.kind == SPREAD:
            return count + own <= self.group.max_skew
        if self.group.kind == AFFINITY:
            return count > 0 or self.bootstraps(allowed, own)
        return count == 0

    def node_takes(self, node: int, own: int) -> bool:
        """Return whether a node that exists will do for a host-name rule other than affinity."""
        count = self.at_node(node)
        return count + own <= self.group.max_skew if self.group.kind == SPREAD else count == 0
