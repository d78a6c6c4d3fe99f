"""What a pod's volumes require of a node: the zone of bound volumes and storage classes, and CSI attach limits.

Decides, per pod, the alternative node requirements that its claims allow (each alternative satisfies all volumes),
which driver counts which claim, and whether a pending pod's claims can be used at all. Topology spread ignores these
requirements, as in Karpenter: they restrict the node, not the pod's choice of domains.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.labels.requirements import Requirements
from dovetail.model.objects import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    PodSpec,
    SelectorRequirement,
    StorageClass,
)
from dovetail.model.rules import DOVETAIL_RULES, Rules

_BOUND: Final = "pv.kubernetes.io/bind-completed"
_IN_TREE: Final = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}


class VolumeNeeds(msgspec.Struct, frozen=True):
    """What one pod's volumes require: OR-joined node requirements and claims per driver.

    `lost`: why no node can take the pod. `unusable`: why a pending pod is not considered at all.
    """

    alternatives: tuple[Requirements, ...] = ()
    attached: tuple[tuple[str, str], ...] = ()
    lost: str | None = None
    unusable: str | None = None


NOTHING: Final = VolumeNeeds()


class Storage:
    """The claims, volumes and storage classes of a cluster, by name."""

    __slots__ = ("_first_terms", "_leaving_bar", "claims", "classes", "limits", "volumes")

    def __init__(self, cluster: Cluster, rules: Rules = DOVETAIL_RULES) -> None:
        self._first_terms, self._leaving_bar = not rules.volume_alternatives, rules.leaving_volumes_bar
        self.claims: dict[tuple[str, str], PersistentVolumeClaim] = {
            (c.metadata.namespace, c.metadata.name): c for c in cluster.pvcs
        }
        self.volumes: dict[str, PersistentVolume] = {v.metadata.name: v for v in cluster.pvs}
        self.classes: dict[str, StorageClass] = {c.metadata.name: c for c in cluster.storage_classes}
        self.limits: dict[str, dict[str, int]] = {n.metadata.name: attach_limits(n) for n in cluster.csi_nodes}

    def needs(self, namespace: str, pod_name: str, spec: PodSpec) -> VolumeNeeds:
        """Return what the volumes of a pod ask for."""
        if not spec.volumes:
            return NOTHING
        alternatives: list[Requirements] = []
        attached: list[tuple[str, str]] = []
        lost = unusable = None
        for name, claim in self._claims_of(namespace, pod_name, spec):
            if claim is None:
                unusable = unusable or f"its PersistentVolumeClaim {name} does not exist"
                continue
            found = self._requirements(claim)
            if isinstance(found, str):
                unusable = unusable or found
                lost = lost or (found if claim.spec.volume_name else None)
            elif found:
                alternatives = _combined(alternatives, found)
            driver = self._driver(claim)
            if driver:
                attached.append((driver, f"{namespace}/{claim.metadata.name}"))
            unusable = unusable or self._why_unusable(claim)
        return VolumeNeeds(tuple(alternatives), tuple(attached), lost, unusable or lost)

    def asked_values(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Return values of node labels that volumes and storage classes ask for."""
        for volume in self.volumes.values():
            affinity = volume.spec.node_affinity
            required = affinity.required if affinity is not None else None
            for term in required.node_selector_terms if required is not None else ():
                for entry in term.match_expressions:
                    yield entry.key, entry.values
        for storage_class in self.classes.values():
            for topology in storage_class.allowed_topologies:
                for label in topology.match_label_expressions:
                    yield label.key, label.values

    def _claims_of(
        self, namespace: str, pod_name: str, spec: PodSpec
    ) -> Iterator[tuple[str, PersistentVolumeClaim | None]]:
        for volume in spec.volumes:
            if volume.persistent_volume_claim is not None:
                name = volume.persistent_volume_claim.claim_name
            elif volume.ephemeral is not None:
                name = f"{pod_name}-{volume.name}"
            else:
                continue
            yield name, self.claims.get((namespace, name))

    def _requirements(self, claim: PersistentVolumeClaim) -> list[Requirements] | str:
        if claim.spec.volume_name:
            volume = self.volumes.get(claim.spec.volume_name)
            if volume is None:
                return f"its PersistentVolume {claim.spec.volume_name} does not exist"
            return self._tried(_volume_alternatives(volume))
        if claim.spec.storage_class_name:
            storage_class = self.classes.get(claim.spec.storage_class_name)
            if storage_class is None:
                return f"its StorageClass {claim.spec.storage_class_name} does not exist"
            return self._tried(_class_alternatives(storage_class))
        return []

    def _tried(self, terms: list[Requirements]) -> list[Requirements]:
        return terms[:1] if self._first_terms else terms

    def _driver(self, claim: PersistentVolumeClaim) -> str:
        if claim.spec.volume_name:
            volume = self.volumes.get(claim.spec.volume_name)
            if volume is None:
                return ""
            if volume.spec.csi is not None:
                return volume.spec.csi.driver
            return _IN_TREE["kubernetes.io/aws-ebs"] if volume.spec.aws_elastic_block_store is not None else ""
        storage_class = self.classes.get(claim.spec.storage_class_name or "")
        if storage_class is None:
            return ""
        return _IN_TREE.get(storage_class.provisioner, storage_class.provisioner)

    def _why_unusable(self, claim: PersistentVolumeClaim) -> str | None:
        """Return why a pending pod with this claim is not considered: kube-scheduler itself would refuse it."""
        name = claim.metadata.name
        if claim.metadata.deletion_timestamp is not None:
            return f"its PersistentVolumeClaim {name} is being deleted"
        if claim.spec.volume_name:
            volume = self.volumes.get(claim.spec.volume_name)
            if self._leaving_bar and volume is not None and volume.metadata.deletion_timestamp is not None:
                return f"its PersistentVolume {claim.spec.volume_name} is being deleted"
            if _BOUND not in claim.metadata.annotations:
                return f"its PersistentVolumeClaim {name} names a volume but is not bound to it yet"
            return None
        if not claim.spec.storage_class_name:
            return f"its PersistentVolumeClaim {name} is unbound and names no storage class"
        storage_class = self.classes.get(claim.spec.storage_class_name)
        if storage_class is not None and storage_class.volume_binding_mode == "Immediate":
            return f"its PersistentVolumeClaim {name} is unbound although its storage class binds immediately"
        return None


def attach_limits(node: CSINode) -> dict[str, int]:
    """Return how many volumes of each driver a node can attach, if it says so."""
    return {
        driver.name: driver.allocatable.count
        for driver in node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def _volume_alternatives(volume: PersistentVolume) -> list[Requirements]:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return []
    bound_to_host = volume.spec.local is not None or volume.spec.host_path is not None
    found: list[Requirements] = []
    for term in affinity.required.node_selector_terms:
        entries = term.match_expressions
        if bound_to_host:
            # Another node means another host: a local volume's host name does not restrict a pod that moves.
            entries = tuple(e for e in entries if e.key != names.HOSTNAME)
            if term.match_expressions and not entries:
                found.append(Requirements())
                continue
        if entries:
            found.append(Requirements.from_spec(entries))
    return found


def _class_alternatives(storage_class: StorageClass) -> list[Requirements]:
    found: list[Requirements] = []
    for term in storage_class.allowed_topologies:
        entries = [SelectorRequirement(key=e.key, operator="In", values=e.values) for e in term.match_label_expressions]
        if entries:
            found.append(Requirements.from_spec(entries))
    return found


def _combined(sofar: list[Requirements], more: list[Requirements]) -> list[Requirements]:
    """Return the cross product; contradictory branches are dropped, unless all are."""
    if not sofar:
        return list(more)
    pairs = [(a, b) for a in sofar for b in more]
    kept = [pair for pair in pairs if pair[0].is_intersecting(pair[1])] or pairs
    return [a.union(b) for a, b in kept]
