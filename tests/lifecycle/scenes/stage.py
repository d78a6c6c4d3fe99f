"""Shared parts of the conversations: settings, a world with a pool and nodes, and the list of all scenes."""

import json
from collections.abc import Callable
from dataclasses import replace

import msgspec

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.objects import NodeClaim
from dovetail.model.settings import Stabilization, StabilizationEnds
from tests.support.conversation import (
    Talk,
    pod,
    pool,
    replica_set,
)
from tests.support.lifecycle_world import CALM, World

QUICK = replace(CALM, replacement_timeout=120 * SECOND)
IN_ORDER = replace(QUICK, evictions_in_order=True)
PAUSES = replace(CALM, stabilization=Stabilization(empty=20 * SECOND, expired=0, drifted=60 * SECOND, cost=90 * SECOND))
LANDS = replace(PAUSES, stabilization_ends=StabilizationEnds.LANDED)
RATE = {"disruption": {"budgets": [{"nodes": "2", "per": "1h"}, {"nodes": "10%"}]}}
WITHIN = {names.POLICY_ANNOTATION: json.dumps({"health": {"movedPodsReadyWithin": "60s"}})}
HANDS_OFF = {names.ALWAYS_DO_NOT_DISRUPT: "true"}
DOLLAR = 10**18

Scenario = Callable[[], list[str]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Register a conversation under the function's name."""
    SCENARIOS[function.__name__] = function
    return function


def stage(talk: Talk, **wishes: str) -> World:
    """Build a world with a managed pool, a node for every wish, and a pod on each."""
    world = talk.world
    world.put(pool())
    world.put(replica_set(replicas=len(wishes)))
    for name, wish in wishes.items():
        world.add_node(name, want=wish)
        world.put(pod(f"on-{name}", name))
    return world


def catalogue() -> Catalogue:
    """Build a catalogue with one machine at ten cents an hour."""
    offering = Offering(capacity_type="on-demand", zone="z1", price=DOLLAR // 10, price_float=0.1)
    return Catalogue(
        instance_types=(InstanceType(name="m", requirements=(), capacity={}, overhead={}, offerings=(offering,)),)
    )


def provisioned(name: str, node: str, **labels: str) -> NodeClaim:
    """Build a NodeClaim from a provisioner; named labels make it launched."""
    tree = {
        "metadata": {"name": name, "uid": name, "labels": {names.NODEPOOL: "web", **labels}},
        "status": {"nodeName": node},
    }
    return msgspec.convert(tree, NodeClaim, strict=False)


LAUNCHED = {names.INSTANCE_TYPE: "m", names.ZONE: "z1", names.CAPACITY_TYPE: "on-demand"}
