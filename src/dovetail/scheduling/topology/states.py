"""The counts of one simulation: a topology group, minus the candidates' pods, plus placed pods.

An overlay on a `Group` of `scheduling.topology.groups`: only what this simulation changes is copied. `Counting` has the
states of all groups in use: a group is counted from the moment in which a pod that its rule applies to is prepared.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.model.labels.requirements import Requirement
from dovetail.scheduling.frame import Frame
from dovetail.scheduling.pods.classes import TERMINAL, TERMINATING, PodClass
from dovetail.scheduling.pods.variants import Variant
from dovetail.scheduling.topology.groups import AFFINITY, INVERSE, SPREAD, Group


class GroupState:
    """A group in one simulation."""

    __slots__ = ("counts", "draws", "extra", "group", "less", "nodes_in", "on_claims", "salt")

    def __init__(self, group: Group, salt: str = "") -> None:
        self.group = group
        self.salt = salt
        self.draws = 0
        self.counts = list(group.counts)
        self.nodes_in = group.nodes_in
        self.less: dict[int, int] = {}
        self.extra: dict[int, int] = {}
        self.on_claims: dict[int, int] = {}

    def forget_nodes(self, nodes: Iterable[int]) -> None:
        """Remove nodes, and each domain that they were all of."""
        group = self.group
        if group.host or group.domains is None:
            return
        places, there = group.domains.places, group.nodes_in
        for node in nodes:
            place = places[node]
            if place >= 0 and there[place] > 0 and group.takes_part(node):
                if self.nodes_in is there:
                    self.nodes_in = list(there)
                self.nodes_in[place] -= 1

    def forget_pod(self, node: int) -> None:
        """Remove a pod that counted on this node."""
        group = self.group
        if not group.takes_part(node):
            return
        if group.host:
            self.less[node] = self.less.get(node, 0) + 1
            return
        assert group.domains is not None
        place = group.domains.places[node]
        if place >= 0:
            self.counts[place] -= 1

    def record_node(self, node: int) -> None:
        """Count a pod that is placed on an existing node."""
        group = self.group
        if group.host:
            self.extra[node] = self.extra.get(node, 0) + 1
            return
        assert group.domains is not None
        place = group.domains.places[node]
        if place >= 0:
            self.counts[place] += 1

    def record_claim(self, claim: int, entry: Requirement | None) -> None:
        """Count a pod that is placed on a new node, whose requirement on the label is `entry`."""
        group = self.group
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
        """Return pods counted on a node (host names only)."""
        count: int = self.group.per_node.item(node)
        return count - self.less.get(node, 0) + self.extra.get(node, 0)

    def present(self, place: int) -> bool:
        """Return whether a domain exists."""
        return self.group.openable[place] or self.nodes_in[place] > 0 or self.counts[place] > 0

    def least(self, allowed: Requirement | None) -> int:
        """Return the smallest count over the domains that the pod's own requirements allow."""
        group = self.group
        assert group.domains is not None
        smallest = 2**31 - 1
        seen = 0
        openable, nodes_in, names = group.openable, self.nodes_in, group.domains.names
        for place, count in enumerate(self.counts):  # `present`, written out: this is asked for every pod
            there = count > 0 or nodes_in[place] > 0 or openable[place]
            if there and (allowed is None or allowed.has(names[place])):
                seen += 1
                if count < smallest:
                    smallest = count
        if group.min_domains is not None and seen < group.min_domains:
            return 0
        return smallest

    def open_domains(self, allowed: Requirement | None, own: int) -> int:
        """Return the domains, as bits, in which an existing node may take the pod. `own`: the pod counts itself."""
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
        """Return nodes with a counted pod, in order, that the pod's own requirements allow."""
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
        """Return the domains that a new node may be narrowed to for this pod; None: no restriction. Empty: impossible.

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
        """Choose one of several equal domains: the first by name or, with a salt, a random one for every pod.

        The rule enters by its text, not its number: a number depends on what was simulated before on the same snapshot.
        """
        if count == 1 or not self.salt:
            return 0
        from hashlib import sha256  # few runs need it

        self.draws += 1
        drawn = sha256(f"{self.salt}/{self.group.text}/{self.draws}".encode()).digest()
        return int.from_bytes(drawn[:8]) % count

    def _host_takes(self, claim: int, allowed: Requirement | None, own: int) -> bool:
        """Return whether the host name of a new node is acceptable.

        A pod that requires other host names never gets this far.
        """
        count = self.on_claims.get(claim, 0)
        if self.group.kind == SPREAD:
            return count + own <= self.group.max_skew
        if self.group.kind == AFFINITY:
            return count > 0 or self.bootstraps(allowed, own)
        return count == 0

    def node_takes(self, node: int, own: int) -> bool:
        """Return whether an existing node is acceptable for a host-name rule other than affinity."""
        count = self.at_node(node)
        return count + own <= self.group.max_skew if self.group.kind == SPREAD else count == 0


class Counting:
    """The states of one simulation, by group (`states`)."""

    def __init__(self, frame: Frame, removed: frozenset[int], moving: Iterable[tuple[PodClass, int, int]]) -> None:
        """Count nothing yet; `moving`: class, node and flags of bound pods that leave their nodes."""
        self.states: dict[int, GroupState] = {}
        self._frame = frame
        self._removed = removed
        ties = frame.settings.ties
        self._salt = f"{ties}/{sorted(removed)}" if ties else ""
        self._moving: dict[int, list[tuple[int, int]]] = {}
        for cls, node, flags in moving:
            self._moving.setdefault(cls.id, []).append((node, flags))
        self._recorders: dict[int, list[GroupState]] = {}

    def activate(self, variant: Variant) -> None:
        """Start counting for the rules of a variant; placements made before are not counted, as upstream."""
        for rule in variant.rules:
            group = rule.group
            if group.id in self.states:
                continue
            state = self.states[group.id] = GroupState(group, self._salt)
            self._recorders.clear()
            state.forget_nodes(self._removed)
            if self._moving:
                self._forget_moving(state)

    def _forget_moving(self, state: GroupState) -> None:
        """Remove the moving pods from a rule's counts."""
        moving, group = self._moving, state.group
        # A terminating pod still enforces its anti-affinity but counts nowhere else.
        uncounted = TERMINAL if group.kind == INVERSE else TERMINATING
        for cls_id in moving.keys() & group.based_on:
            for node, flags in moving[cls_id]:
                if not flags & uncounted:
                    state.forget_pod(node)

    def recorders_of(self, cls: PodClass) -> Sequence[GroupState]:
        """Return the states that count pods of a class."""
        if not self.states:
            return ()
        found = self._recorders.get(cls.id)
        if found is None:
            states, near = self.states, self._frame.counting.get(cls.id)
            found = [states[group.id] for group in near if group.id in states] if near else []
            if cls.info.anti_affinity:
                owned = self._frame.inverse_owned(cls)
                found.extend(self.states[group.id] for group in owned if group.id in self.states)
            self._recorders[cls.id] = found
        return found
