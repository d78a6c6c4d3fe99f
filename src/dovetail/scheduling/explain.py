"""Why a pod found no place: the constraint and the closest miss, in one sentence, computed only on request.

Uses the final state of the simulation and the pod without its preferences: first the existing nodes (taints, labels,
volumes, room, ports, other pods), then each pool. Decides nothing; simulations that succeed never call it, so they stay
fast.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dovetail.model import names
from dovetail.model.labels.requirements import Requirements
from dovetail.model.objects import Pod, Taint
from dovetail.model.quantity import format_amount
from dovetail.scheduling.entries import Entry
from dovetail.scheduling.launch.machines import Mask
from dovetail.scheduling.launch.templates import HOST_PLACEHOLDER, Template, short_values, usable_pools
from dovetail.scheduling.packer import Packer
from dovetail.scheduling.pods.pod import untolerated
from dovetail.scheduling.pods.variants import Rule, Variant
from dovetail.scheduling.topology.groups import AFFINITY, INVERSE, SPREAD

if TYPE_CHECKING:
    from dovetail.scheduling.snapshot import Snapshot

_POOLS_MAX = 3


def explain_uninitialized(pod: Pod, node: str) -> Callable[[], str]:
    """Explain a pod that would land on a node that has not started yet."""
    return lambda: f"{pod.metadata.key} would land on {node}, which is not initialized yet"


def explain(snapshot: "Snapshot", engine: Packer, entry: Entry) -> Callable[[], str]:
    """Explain a pod that no node and no pool takes."""
    return lambda: _Reasons(snapshot, engine, entry).sentence()


def amount_words(resource: str, amount: int) -> str:
    """Return an amount in words: `3.2 CPU`, `1.5Gi memory`, `2 example.com/gpu`."""
    if resource == "cpu":
        return f"{amount / 1000:g} CPU"
    if resource == "memory":
        for unit, size in (("Gi", 2**30), ("Mi", 2**20)):
            if amount >= size:
                return f"{round(amount / size, 2):g}{unit} memory"
    return f"{format_amount(resource, amount)} {resource}"


def taint_words(taint: Taint) -> str:
    """Return a taint as kubectl writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


class _Reasons:
    def __init__(self, snapshot: "Snapshot", engine: Packer, entry: Entry) -> None:
        self.snapshot = snapshot
        self.engine = engine
        self.entry = entry
        self.frame = engine.frame
        variant = self.frame.first(entry.cls)
        while (softer := variant.after) is not None:
            variant = softer
        self.variant: Variant = variant

    def sentence(self) -> str:
        """Return the reasons as one sentence: nodes first, then the pools, in the order in which they were tried."""
        if self.variant.lost:
            return self.variant.lost
        parts = [self._nodes()]
        templates = self.frame.templates
        if not templates:
            parts.append("no pool can launch a node")
        parts.extend(
            f"pool {pool.metadata.name} requires {unknown[0]}, which no instance type has"
            for pool in usable_pools(self.snapshot.cluster.node_pools)
            if (unknown := self.snapshot.unknown_labels(pool))
        )
        parts.extend(f"pool {t.name}: {self._pool(t)}" for t in templates[:_POOLS_MAX])
        if len(templates) > _POOLS_MAX:
            parts.append(f"and {len(templates) - _POOLS_MAX} more pools refuse it too")
        return "; ".join(parts)

    # Nodes that exist

    def _nodes(self) -> str:
        columns, variant = self.frame.columns, self.variant
        alive = self.frame.open.copy()
        alive[list(self.engine.removed)] = False
        if not alive.any():
            return "no other node takes pods"
        tolerated = alive & columns.tolerated(variant.tolerations)
        if not tolerated.any():
            taint = self._first_taint(alive)
            return "it tolerates no node's taints" + (f" ({taint_words(taint)})" if taint is not None else "")
        labelled = tolerated & columns.meets(variant.reqs.reqs)
        if not labelled.any():
            return self._label_miss(tolerated)
        usable = alive & variant.static
        if not usable.any():
            wanted = " or ".join(str(reqs.reqs) for reqs in variant.alternatives)
            return f"its volumes need a node with {wanted}, and none that it may use is there"
        return self._room_miss(usable) or self._company_miss(usable)

    def _first_taint(self, alive: Mask) -> Taint | None:
        node = int(np.flatnonzero(alive)[0])
        return untolerated(self.variant.tolerations, self.frame.columns.states[node].taints)

    def _label_miss(self, among: Mask) -> str:
        for entry in self.variant.reqs.reqs:
            if not (among & self.frame.columns.meets(Requirements((entry,)))).any():
                return f"no node it tolerates has {entry}"
        return f"no node it tolerates has {self.variant.reqs.reqs} together"

    def _left(self, node: int) -> list[int]:
        touched = self.engine.touched.get(node)
        if touched is not None:
            return touched.left
        left: list[int] = self.frame.room[node].tolist()
        return left

    def _room_miss(self, usable: Mask) -> str:
        """Return the resource that no usable node has enough of, with the largest amount available.

        Empty if some node has room.
        """
        rooms = {node: self._left(node) for node in np.flatnonzero(usable).tolist()}
        need = self.variant.need
        if any(all(left[column] >= amount for column, amount in need) for left in rooms.values()):
            return ""
        for column, amount in need:
            best = max(rooms, key=lambda node: (rooms[node][column], -node))
            if rooms[best][column] < amount:
                return f"needs {self._amount(column, amount)}, best free is {self._free(rooms, best, column)}"
        wanted = " and ".join(self._amount(column, amount) for column, amount in need if column != 2)
        closest = max(rooms, key=lambda node: (sum(rooms[node][c] >= a for c, a in need), -node))
        free = " and ".join(self._amount(c, rooms[closest][c]) for c, _ in need if c != 2)
        return f"needs {wanted} together, closest is {self._name(closest)} with {free} free"

    def _free(self, rooms: dict[int, list[int]], node: int, column: int) -> str:
        return f"{self._amount(column, rooms[node][column])} on {self._name(node)}"

    def _amount(self, column: int, amount: int) -> str:
        return amount_words(self.frame.resources.names[column], amount)

    def _name(self, node: int) -> str:
        return self.frame.columns.states[node].name

    def _company_miss(self, usable: Mask) -> str:
        """Return what keeps the pod from the nodes that have room: closed nodes, ports, attach limits, other pods."""
        engine, variant = self.engine, self.variant
        roomy = [
            node
            for node in np.flatnonzero(usable).tolist()
            if all(self._left(node)[column] >= amount for column, amount in variant.need)
        ]
        free = [node for node in roomy if self.entry.exempt or node not in engine.closed]
        if not free:
            return (
                f"the {len(roomy)} nodes with room are closed to moved pods for now, {self._name(roomy[0])} among them"
            )
        ports = self.frame.ports
        clear = [n for n in free if not any(p.clashes(o) for p in variant.ports for o in ports.get(n, ()))]
        if not clear:
            numbers = ", ".join(sorted({str(port.port) for port in variant.ports}))
            return f"host port {numbers} is taken on every node with room, {self._name(free[0])} among them"
        attachable = [n for n in clear if self.frame.attaches(n, variant.attached, ())]
        if not attachable:
            return f"no node with room can attach another volume, {self._name(clear[0])} among them"
        words = dict.fromkeys(text for rule in variant.rules if (text := self._rule_miss(rule, attachable)))
        return "; ".join(words) if words else f"{self._name(attachable[0])} has room but was taken by larger pods"

    def _rule_miss(self, rule: Rule, nodes: list[int]) -> str:
        group, state = rule.group, self.engine.states.get(rule.group.id)
        if state is None:
            return ""
        if group.host:
            blocked = [n for n in nodes if not _host_open(state.at_node(n), rule)]
            return f"{self._name(blocked[0])} is full by {_rule_words(rule)}" if blocked else ""
        assert group.domains is not None
        bits = state.open_domains(rule.allowed, rule.own)
        column = group.domains.column
        shut = sorted({int(column[n]) for n in nodes if column[n] >= 0 and not bits >> int(column[n]) & 1})
        if not shut:
            lacking = [n for n in nodes if column[n] < 0]
            return f"{self._name(lacking[0])} has no label {group.key}" if lacking else ""
        counts = f"{state.counts[shut[0]]} there"
        if group.kind == SPREAD:
            counts += f", the least is {state.least(rule.allowed)}"
        label = "zone" if group.key == names.ZONE else group.key
        places = ", ".join(group.domains.names[place] for place in shut)
        return f"{label} {places} {'is' if len(shut) == 1 else 'are'} full by {_rule_words(rule)} ({counts})"

    # Pools

    def _pool(self, template: Template) -> str:
        variant, machines = self.variant, self.frame.machines
        taint = untolerated(variant.tolerations, template.taints)
        if taint is not None:
            return f"it does not tolerate {taint_words(taint)}"
        merged = machines.merged(template.reqs, variant.reqs)
        if merged is None:
            host = variant.reqs.get(names.HOSTNAME)
            if host is not None and not host.has(HOST_PLACEHOLDER):
                return f"a new node has a name of its own, it asks for {host}"
            why = template.reqs.reqs.compatible(variant.reqs.reqs, machines.known)
            return why or "its requirements don't go together with the pool's"
        left = self.engine.limits_left.get(template.index)
        if left is not None and not self._allowed(left, template.types):
            short = ", ".join(amount_words(name, amount) for name, amount in sorted(left.items()))
            return f"its limits leave {short}, less than any of its types"
        types = template.types & merged.types
        if not types:
            return "no type with these labels is offered"
        for column, amount in variant.need:
            if not types & template.room[column].at_least(amount):
                return f"no type has {self._amount(column, amount)} after its daemons"
        if short_values(machines, merged, types):
            return "too few types are left for its minValues"
        words = dict.fromkeys(text for rule in variant.zone_rules if (text := self._openable_miss(rule)))
        return "; ".join(words) if words else "no type has all of it together, or its rules leave no domain"

    def _allowed(self, left: dict[str, int], types: int) -> int:
        if left.get("nodes") == 0:
            return 0
        for name, amount in left.items():
            types &= self.frame.machines.within(name, amount)
        return types

    def _openable_miss(self, rule: Rule) -> str:
        state = self.engine.states.get(rule.group.id)
        if state is None:
            return ""
        entry = state.claim_domains(0, rule.allowed, None, rule.own)
        if entry is not None and not entry.values:
            label = "zone" if rule.group.key == names.ZONE else rule.group.key
            return f"{_rule_words(rule)} leaves no {label}"
        return ""


def _host_open(count: int, rule: Rule) -> bool:
    if rule.group.kind == SPREAD:
        return count + rule.own <= rule.group.max_skew
    return count > 0 if rule.group.kind == AFFINITY else count == 0


def _rule_words(rule: Rule) -> str:
    group = rule.group
    if group.kind == SPREAD:
        return f"its spread of {group.max_skew}"
    if group.kind == AFFINITY:
        return "its pod affinity"
    return "another pod's anti-affinity" if group.kind == INVERSE else "its pod anti-affinity"
