"""Host ports and volumes in use on nodes. Decides nothing; sits in scheduling, below the snapshot."""

from collections.abc import Sequence

import numpy as np

from dovetail.model.objects import Pod
from dovetail.scheduling.pods.bindings import Bindings
from dovetail.scheduling.pods.classes import Classes
from dovetail.scheduling.pods.pod import HostPort
from dovetail.scheduling.pods.volumes import Storage


class PortsAndVolumes:
    """`ports`: host ports in use, by node; `attached`: volumes by node and driver, if there are attach limits."""

    def __init__(self, pods: Sequence[Pod], bindings: Bindings, storage: Storage, classes: Classes) -> None:
        self.ports: dict[int, list[HostPort]] = {}
        self.attached: dict[int, dict[str, set[str]]] = {}
        limits = bool(storage.limits)
        if not limits and not classes.ports:
            return
        special = np.array([bool(c.info.ports) or (limits and c.info.volumes) for c in classes.all], dtype=np.bool_)
        for at in np.flatnonzero(bindings.running & special[bindings.cls]).tolist():
            pod, info, node = pods[at], bindings.class_at(at).info, int(bindings.node[at])
            if info.ports:
                self.ports.setdefault(node, []).extend(info.ports)
            if limits and info.volumes:
                needs = storage.needs(pod.metadata.namespace, pod.metadata.name, pod.spec)
                for driver, claim in needs.attached:
                    self.attached.setdefault(node, {}).setdefault(driver, set()).add(claim)
