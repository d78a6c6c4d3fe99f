"""The generated clusters would notice a rule that is missing: a packer that forgets one is caught."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.properties.agreement import differences
from tests.reference import claims, pods, topology, volumes
from tests.reference.claims import NewClaim, Reservations
from tests.reference.generator import sample
from tests.reference.packer import ReferencePacker, _Run
from tests.reference.pods import PortUse
from tests.reference.quantities import Resources, add, amounts
from tests.reference.requirements import Requirements
from tests.reference.topology import Group, NodeFilter, Topology
from tests.reference.volumes import AttachedVolumes, Volumes

Patch = tuple[object, str, Any]


def _constant(value: object) -> Callable[..., object]:
    return lambda *given, **named: value


def _only_first_pool(run: _Run, *given: Any) -> bool:
    run._templates[1:] = []
    return _ADD_TO_NEW(run, *given)


_ADD_TO_NEW = _Run._add_to_new
_COUNT = Topology._count


def _count_nothing(self: Topology, group: Group) -> None:
    _COUNT(self, group)
    group.counts.update(dict.fromkeys(group.counts, 0))


def _without_init(pod: Any) -> Resources:
    total: Resources = {"pods": 1}
    for container in pod.spec.containers:
        total = add(total, amounts(container.resources.requests))
    return total


FORGOTTEN: dict[str, tuple[tuple[str, ...], Patch]] = {
    "taints": (("taints",), (pods, "tolerates", _constant(True))),
    "host ports": (("host-ports",), (PortUse, "conflicts", _constant(False))),
    "init containers": (("init-containers",), (pods, "requests_of", _without_init)),
    "minValues": (("min-values",), (claims, "missing_values", _constant({}))),
    "where volumes are": (("volumes",), (Volumes, "alternatives", _constant([]))),
    "how many volumes fit": (("volumes",), (AttachedVolumes, "exceeded_by", _constant(False))),
    "volumes that are gone": (("volumes",), (volumes.Volumes, "is_lost", _constant(False))),
    "relaxing": (("preferences",), (pods, "relaxed", _constant(None))),
    "preferences": (("preferences",), (pods, "all_requirements", pods.strict_requirements)),
    "OR terms": (("affinity-terms",), (pods, "without_first_required_term", _constant(None))),
    "required affinity": (("affinity-terms",), (pods, "strict_requirements", _constant(Requirements()))),
    "daemons on new nodes": (("daemons",), (claims.Daemons, "_runs_on", _constant(False))),
    "spread": (("spread",), (Group, "_spread", lambda self, pod, own, node: self._known(node))),
    "pods that run": (("spread",), (Topology, "_count", _count_nothing)),
    "minDomains and which nodes count": (
        ("spread", "spread-policies", "taints"),
        (NodeFilter, "admits", _constant(True)),
    ),
    "affinity": (("pod-affinity",), (Group, "_affinity", lambda self, pod, own, node: self._known(node))),
    "anti-affinity": (("anti-affinity",), (Group, "_anti_affinity", lambda self, own, node: self._known(node))),
    "anti-affinity of others": (("anti-affinity",), (Topology, "_watch_running_anti_affinity", _constant(None))),
    "what is placed": (("anti-affinity",), (topology.Topology, "record", _constant(None))),
    "pods that PDBs hold": (("pdbs",), (pods, "is_fully_blocked", _constant(False))),
    "pods that ask to be left alone": (("odd-pods",), (pods, "may_not_be_disrupted", _constant(False))),
    "leaving nodes": (("leaving",), (ReferencePacker, "is_leaving", _constant(False))),
    "limits": (
        ("limits",),
        (_Run, "_remaining_limits", lambda self, staying: {p.metadata.name: {} for p in self.packer.pools}),
    ),
    "other pools": (("weights", "taints"), (_Run, "_add_to_new", _only_first_pool)),
    "reservations run out": (("reserved", "pending"), (Reservations, "can_reserve", _constant(True))),
    "full reservations": (("reserved",), (NewClaim, "_reservable", _constant([]))),
    "offerings": (("availability",), (claims, "goes_with", _constant(True))),
}


@pytest.mark.parametrize("rule", sorted(FORGOTTEN))
def test_a_forgotten_rule_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rule taken out of one packer, some of the first clusters with that feature tell the packers apart."""
    features, (where, name, instead) = FORGOTTEN[rule]
    monkeypatch.setattr(where, name, instead)
    assert any(next(differences(sample(seed, features)), None) for seed in range(300)), f"nothing tests {rule}"
