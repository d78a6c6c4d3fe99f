"""What the simulated machines cost an hour under a tariff: the same bills as a round's, made by the same code.

The commitments, discounts and surcharges are the world's, whatever a policy knows of them: all policies of a run are
billed alike. Sits in sim.world, beside the cloud.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.commitments import BilledMachine, Bills
from dovetail.model.settings import DOVETAIL, Tariff
from dovetail.scheduling.launch.paid_types import PaidTypes
from dovetail.scheduling.surroundings import Surroundings, surroundings_of
from dovetail.sim.world.cloud import Instance


class TariffMeter:
    """Bills machines by a tariff; `cluster` returns the pools and nodes that discounts and surcharges go by."""

    def __init__(self, tariff: Tariff, cluster: Callable[[], Cluster]) -> None:
        self._settings = replace(DOVETAIL.paying(tariff), rules=replace(DOVETAIL.rules, list_prices=True))
        self._bills = Bills(tariff.commitments)
        self._cluster = cluster
        self._around: Surroundings | None = None
        self._types: PaidTypes | None = None

    def __call__(self, instances: Iterable[Instance], catalogue: Catalogue) -> Fraction:
        """Return what these machines cost an hour together; those without a known price cost nothing."""
        types = self._types_of(catalogue)
        found: Counter[BilledMachine] = Counter()
        for one in instances:
            machine = types.bought(one.kind.name, one.pool, one.zone, one.capacity_type, one.region)
            if machine is not None:
                found[machine] += 1
        return self._bills.total(found)

    def _types_of(self, catalogue: Catalogue) -> PaidTypes:
        around = surroundings_of(self._cluster(), catalogue, self._settings, self._around)
        if self._types is None or self._around is None or around.overlaid is not self._around.overlaid:
            self._types = PaidTypes(around.paid)
        self._around = around
        return self._types
