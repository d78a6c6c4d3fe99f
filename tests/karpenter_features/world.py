"""Small clusters with what Karpenter's features read: gates, buffers, overlays, Services."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from dovetail.api.karpenter import read_karpenter
from dovetail.model.objects import KINDS, AnyObject
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from tests.support.lifecycle_world import World

CONSOLIDATABLE = {"type": "Consolidatable", "status": "True"}
FREE = {"consolidationSavingsThreshold": 0}
BOTH = (DOVETAIL, KARPENTER_1_15)


def told(settings: Settings = DOVETAIL, **karpenter: Any) -> Settings:
    """Return settings that state how Karpenter was started."""
    return replace(settings, karpenter=read_karpenter(karpenter, "karpenter"))


def thing(kind: str, name: str, *, namespace: str = "default", **parts: Any) -> AnyObject:
    """Return an object of any kind, as in a manifest."""
    meta: dict[str, Any] = {"name": name, "uid": name, **parts.pop("metadata", {})}
    if kind != "NodeOverlay":
        meta["namespace"] = namespace
    made: AnyObject = msgspec.convert({"kind": kind, "metadata": meta, **parts}, KINDS[kind])
    return made


def template(cpu: str = "1", **spec: Any) -> dict[str, Any]:
    """Return a pod template."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": {"labels": {"app": "buffered"}}, "spec": {"containers": containers, **spec}}


def buffer(name: str, *, cpu: str = "1", ready: bool = True, **spec: Any) -> list[AnyObject]:
    """Return a CapacityBuffer for a PodTemplate, and that template."""
    status: dict[str, Any] = {}
    if ready:
        status = {"conditions": [{"type": "ReadyForProvisioning", "status": "True"}]}
    whole = {"podTemplateRef": {"name": name}, **spec}
    return [
        thing("CapacityBuffer", name, spec=whole, status=status),
        thing("PodTemplate", name, template=template(cpu)),
    ]


def world_with(**wants: str) -> World:
    """Return a cluster with a pool, a node without a command, and nodes with the given `want`."""
    world = World()
    world.add_pool()
    world.add_node("rest")
    for name, want in wants.items():
        world.add_node(name, want=want)
    return world
