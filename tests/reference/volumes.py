"""What a pod's volumes ask of a node: where it must be, and how many it can still attach."""

from __future__ import annotations

from contextlib import suppress

from dovetail.model.cluster import Cluster
from dovetail.model.objects import CSINode, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, Volume
from tests.reference.requirements import Requirements, from_expressions, requirement

# In-tree volume plugins whose volumes a CSI driver attaches nowadays.
MIGRATED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}

VolumesByDriver = dict[str, frozenset[str]]


class VolumeError(Exception):
    """An object that a volume leads to is not there."""


class Volumes:
    """Looks volumes up: claims, volumes and storage classes by name.

    `unfound`: the place of a bound volume can't be looked up, as in the recordings of Karpenter (data/README.md).
    """

    def __init__(self, cluster: Cluster, *, unfound: bool = False) -> None:
        self._unfound = unfound
        self._claims = {(item.metadata.namespace, item.metadata.name): item for item in cluster.pvcs}
        self._volumes = {item.metadata.name: item for item in cluster.pvs}
        self._classes = {item.metadata.name: item for item in cluster.storage_classes}

    def _claim(self, pod: Pod, volume: Volume) -> PersistentVolumeClaim | None:
        """Return the claim behind a volume; None for volumes that have none."""
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            name = f"{pod.metadata.name}-{volume.name}"
        else:
            return None
        claim = self._claims.get((pod.metadata.namespace, name))
        if claim is None:
            raise VolumeError(f"claim {pod.metadata.namespace}/{name} is not there")
        return claim

    def _volume(self, name: str) -> PersistentVolume:
        if name not in self._volumes:
            raise VolumeError(f"volume {name} is not there")
        return self._volumes[name]

    # Where

    def alternatives(self, pod: Pod) -> list[Requirements]:
        """Combinations of requirements one of which the pod's node must meet; empty where the volumes don't care."""
        combined: list[Requirements] = []
        for volume in pod.spec.volumes:
            terms = self._terms_of(pod, volume)
            if not terms:
                continue
            if not combined:
                combined = terms
                continue
            pairs = [(one, other) for one in combined for other in terms]
            agreeing = [(one, other) for one, other in pairs if one.intersects(other)]
            combined = [Requirements([*one, *other]) for one, other in agreeing or pairs]
        return combined

    def _terms_of(self, pod: Pod, volume: Volume) -> list[Requirements]:
        try:
            claim = self._claim(pod, volume)
            return self._terms(claim) if claim else []
        except VolumeError:
            # Karpenter gives up on all volumes of the pod then, and on its topology rules; we on this volume alone.
            if self._unfound:
                raise
            return []

    def _terms(self, claim: PersistentVolumeClaim) -> list[Requirements]:
        if claim.spec.volume_name:
            if self._unfound:
                raise VolumeError("volumes can't be looked up")
            return _volume_terms(self._volume(claim.spec.volume_name))
        if claim.spec.storage_class_name:
            storage_class = self._classes.get(claim.spec.storage_class_name)
            if storage_class is None:
                raise VolumeError(f"storage class {claim.spec.storage_class_name} is not there")
            return _class_terms(storage_class)
        return []

    # How many

    def by_driver(self, pod: Pod) -> VolumesByDriver:
        """Return the pod's claims by the driver that attaches them; claims that are gone don't count.

        A volume that is gone counts neither where the pod runs; a pod that is placed can't have it (`is_lost`).
        """
        found: VolumesByDriver = {}
        for volume in pod.spec.volumes:
            try:
                claim = self._claim(pod, volume)
                driver = self._driver(claim) if claim else ""
            except VolumeError:
                continue
            if claim and driver:
                name = f"{claim.metadata.namespace}/{claim.metadata.name}"
                found[driver] = found.get(driver, frozenset()) | {name}
        return found

    def is_lost(self, pod: Pod) -> bool:
        """Return whether a claim of the pod is bound to a volume that is not there."""
        for volume in pod.spec.volumes:
            with suppress(VolumeError):
                claim = self._claim(pod, volume)
                if claim and claim.spec.volume_name and claim.spec.volume_name not in self._volumes:
                    return True
        return False

    def _driver(self, claim: PersistentVolumeClaim) -> str:
        if claim.spec.volume_name:
            spec = self._volume(claim.spec.volume_name).spec
            if spec.csi is not None:
                return spec.csi.driver
            return MIGRATED["kubernetes.io/aws-ebs"] if spec.aws_elastic_block_store is not None else ""
        storage_class = self._classes.get(claim.spec.storage_class_name or "")
        if storage_class is None:
            return ""
        return MIGRATED.get(storage_class.provisioner, storage_class.provisioner)

    # Pending pods

    def problem(self, pod: Pod) -> str | None:
        """Why a pending pod can't be scheduled yet for its volumes' sake."""
        for volume in pod.spec.volumes:
            try:
                claim = self._claim(pod, volume)
                problem = self._claim_problem(claim) if claim else None
            except VolumeError as error:
                return str(error)
            if problem:
                return problem
        return None

    def _claim_problem(self, claim: PersistentVolumeClaim) -> str | None:
        if claim.metadata.deletion_timestamp is not None:
            return "claim is being deleted"
        if claim.spec.volume_name:
            volume = self._volume(claim.spec.volume_name)
            if volume.metadata.deletion_timestamp is not None:
                return "volume is being deleted"
            if "pv.kubernetes.io/bind-completed" not in claim.metadata.annotations:
                return "claim is not bound yet"
            return None
        storage_class = self._classes.get(claim.spec.storage_class_name or "")
        if storage_class is None:
            return "unbound claim without a storage class"
        if storage_class.volume_binding_mode == "Immediate":
            return "claim with immediate binding is not bound yet"
        return None


def _volume_terms(volume: PersistentVolume) -> list[Requirements]:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return []
    # A local volume's host is given up with the pod: it would not follow anyway.
    is_local = volume.spec.local is not None or volume.spec.host_path is not None
    terms = []
    for term in affinity.required.node_selector_terms:
        kept = [item for item in term.match_expressions if not (is_local and item.key == "kubernetes.io/hostname")]
        if term.match_expressions and (kept or is_local):
            terms.append(from_expressions(kept))
    return terms


def _class_terms(storage_class: StorageClass) -> list[Requirements]:
    return [
        Requirements(requirement(item.key, "In", item.values) for item in topology.match_label_expressions)
        for topology in storage_class.allowed_topologies
        if topology.match_label_expressions
    ]


class AttachedVolumes:
    """The volumes of one node and how many it can hold per driver."""

    def __init__(self, csi_node: CSINode | None) -> None:
        self._limits: dict[str, int] = {}
        for driver in csi_node.spec.drivers if csi_node else ():
            if driver.allocatable is not None and driver.allocatable.count is not None:
                self._limits[driver.name] = driver.allocatable.count
        self._attached: VolumesByDriver = {}

    def with_more(self, volumes: VolumesByDriver) -> VolumesByDriver:
        """Return all volumes if these came."""
        names = {**self._attached, **volumes}
        return {name: self._attached.get(name, frozenset()) | volumes.get(name, frozenset()) for name in names}

    def exceeded_by(self, volumes: VolumesByDriver) -> bool:
        """Return whether a driver, of these volumes or others, would be over its limit if these came."""
        return any(
            name in self._limits and len(claims) > self._limits[name]
            for name, claims in self.with_more(volumes).items()
        )

    def add(self, volumes: VolumesByDriver) -> None:
        """These came."""
        self._attached = self.with_more(volumes)
