"""Which pod of each ReplicaSet a scale-down should remove next (docs/better-decisions.md, Steering).

It is on the node that should go first, in the fullest zone of the ReplicaSet. In a restless pool the zone of a closing
node may have one pod less, unless the pod's spread over zones is required: the next new pod restores the balance. A
pod that is marked stays the victim unless another is clearly better. Only ReplicaSets whose pods or nodes changed are
looked at again. Sits in decide, above node_facts, below the cache; `steering` asks.
"""

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.outcome import Victim
from dovetail.model import names
from dovetail.model.listing import are_the_same
from dovetail.model.objects import Pod

STAYS: Final = 1.5
"""How much better another node or pod must be to take the place of one that is closing or marked."""


class Victims:
    """The next victim of every ReplicaSet of two pods or more without deletion costs of others."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeFacts] = {}
        self._closing: AbstractSet[str] = frozenset()
        self._restless: AbstractSet[str] = frozenset()
        self._on: dict[str, dict[str, NodeFacts]] = {}
        self._found: dict[str, Victim] = {}
        self._sorted: tuple[Victim, ...] = ()

    def on(
        self, nodes: Sequence[NodeFacts], closing: AbstractSet[str], restless: AbstractSet[str]
    ) -> tuple[Victim, ...]:
        """Return the victims on these nodes, by namespace and name.

        `closing`: the nodes that should become empty; `restless`: those of them whose pool is restless.
        """
        owners = self._follow({facts.name: facts for facts in nodes})
        for name in (closing ^ self._closing) | (restless ^ self._restless):
            owners.update(dict.fromkeys(self._nodes[name].replicas if name in self._nodes else ()))
        self._closing, self._restless = closing, restless
        for owner in owners:
            self._look_at(owner)
        if owners:
            self._sorted = tuple(sorted(self._found.values(), key=lambda victim: (victim.namespace, victim.name)))
        return self._sorted

    def _follow(self, nodes: dict[str, NodeFacts]) -> dict[str, None]:
        """Replace the nodes; return the ReplicaSets with a pod on one that came, went or changed."""
        before, self._nodes = self._nodes, nodes
        owners: dict[str, None] = {}
        for name in [name for name, facts in before.items() if nodes.get(name) is not facts]:
            for owner in before[name].replicas:
                if not _are_alike(owner, before[name], nodes.get(name)):
                    owners[owner] = None
                del self._on[owner][name]
        for name in [name for name, facts in nodes.items() if before.get(name) is not facts]:
            for owner in nodes[name].replicas:
                if not _are_alike(owner, nodes[name], before.get(name)):
                    owners[owner] = None
                self._on.setdefault(owner, {})[name] = nodes[name]
        return owners

    def _look_at(self, owner: str) -> None:
        members = [(pod, facts) for facts in self._on[owner].values() for pod in facts.replicas[owner]]
        if not members:
            del self._on[owner]
        if len(members) > 1 and not any(_is_anothers(pod) for pod, _ in members):
            meta = self._victim(members).metadata
            self._found[owner] = Victim(owner=owner, namespace=meta.namespace, name=meta.name, uid=meta.uid)
        else:
            self._found.pop(owner, None)

    def _victim(self, members: Sequence[tuple[Pod, NodeFacts]]) -> Pod:
        zones = Counter(facts.zone for _, facts in members)
        fullest = max(zones.values())

        def key(entry: tuple[Pod, NodeFacts]) -> tuple[bool, bool, float, str]:
            pod, facts = entry
            stays = STAYS if names.STEERING_MARK in pod.metadata.annotations else 1.0
            spare = 1 if facts.name in self._restless and not _must_spread(pod) else 0
            uneven = zones[facts.zone] + spare < fullest
            return uneven, facts.name not in self._closing, -facts.savings_ratio * stays, pod.metadata.name

        return min(members, key=key)[0]


def _are_alike(owner: str, one: NodeFacts, other: NodeFacts | None) -> bool:
    """Return whether two facts of a node say the same of a ReplicaSet: its pods, the zone, what its going saves."""
    if other is None or one.zone != other.zone or one.savings_ratio != other.savings_ratio:
        return False
    return are_the_same(one.replicas[owner], other.replicas.get(owner, ()))


def _is_anothers(pod: Pod) -> bool:
    """Return whether the pod has a deletion cost that Dovetail did not set."""
    cost = pod.metadata.annotations.get(names.POD_DELETION_COST)
    return cost is not None and cost != pod.metadata.annotations.get(names.STEERING_MARK)


def _must_spread(pod: Pod) -> bool:
    """Return whether the pod's zones must not become uneven."""
    spreads = pod.spec.topology_spread_constraints
    return any(one.topology_key == names.ZONE and one.when_unsatisfiable == "DoNotSchedule" for one in spreads)
