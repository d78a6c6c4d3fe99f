"""What the machines of a recording really cost under a tariff: the bill of every stretch between two changes.

Without a tariff the recorded prices are simply added up (`sim.recorded`). Sits in sim, beside it.
"""

from datetime import datetime
from itertools import pairwise

from dovetail.model.catalogue import Catalogue
from dovetail.model.money import UNIT
from dovetail.model.settings import Tariff
from dovetail.recordings.read import ClaimLife, ClusterRecording
from dovetail.sim.world.cloud import Instance
from dovetail.sim.world.metering import TariffMeter


def recorded_cost(recording: ClusterRecording, catalogue: Catalogue, tariff: Tariff) -> float | None:
    """Return what the recorded machines cost in dollars under a tariff; None: there is none, so prices add up."""
    if not tariff:
        return None
    cluster = recording.cluster_at(recording.begins)
    meter = TariffMeter(tariff, lambda: cluster)
    kinds = {kind.name: kind for kind in catalogue.instance_types}
    machines: dict[str, Instance] = {}
    changes: dict[datetime, list[tuple[str, bool]]] = {recording.begins: [], recording.ends: []}
    for number, life in enumerate(recording.claims):
        kind = kinds.get(life.instance_type)
        begin, end = life_of(life, recording)
        begin, end = max(begin, recording.begins), min(end, recording.ends)
        if kind is None or begin >= end:
            continue
        name = f"{life.name}/{number}"
        machines[name] = Instance(
            claim=life.name,
            kind=kind,
            zone=life.zone,
            capacity_type=life.capacity_type,
            started=0,
            pool=life.node_pool,
        )
        changes.setdefault(begin, []).append((name, True))
        changes.setdefault(end, []).append((name, False))
    running: dict[str, Instance] = {}
    total, moments = 0.0, sorted(changes)
    for at, until in pairwise(moments):
        for name, came in changes[at]:
            if came:
                running[name] = machines[name]
            else:
                running.pop(name, None)
        rate = meter(running.values(), catalogue)
        total += float(rate) / UNIT * (until - at).total_seconds() / 3600
    return total


def life_of(claim: ClaimLife, recording: ClusterRecording) -> tuple[datetime, datetime]:
    """Return from when to when a machine is paid for."""
    begin = claim.launched or claim.created or recording.begins
    return begin, claim.gone or datetime.max.replace(tzinfo=begin.tzinfo)
