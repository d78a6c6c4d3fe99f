"""The instance types of a catalogue as each pool sees them, and the catalogue in which those that differ are variants.

Pools of EKS Auto Mode see the labels of that cloud (`model.labels.clouds`) and can't launch its excluded sizes; where
such pools and others are in one cluster, each type says that it doesn't have the labels of the other kind. NodeOverlays
change what a pool sees further (`scheduling.launch.overlays`). Sits in scheduling, below machines.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from dovetail.model.catalogue import Catalogue, InstanceType
from dovetail.model.labels.clouds import AUTO, COMPUTE_TYPE, auto_mode_key, runs_auto_mode
from dovetail.model.objects import NodePool, SelectorRequirement

EXCLUDED_SIZES: Final = frozenset({"nano", "micro", "small"})
"""Sizes that EKS Auto Mode does not launch."""
_SIZE: Final = "karpenter.k8s.aws/instance-size"


class Dialect(NamedTuple):
    """How a cloud names the labels of its machines.

    `auto`: as EKS Auto Mode does. `kept`: labels of the AWS provider that an Auto Mode pool requires all the same.
    `mixed`: the cluster has pools of both kinds.
    """

    auto: bool = False
    kept: frozenset[str] = frozenset()
    mixed: bool = False


PLAIN: Final = Dialect()


def dialects(pools: Sequence[NodePool]) -> list[Dialect]:
    """Return the dialect of each pool."""
    auto = [runs_auto_mode(pool) for pool in pools]
    if not any(auto):
        return [PLAIN] * len(pools)
    mixed = not all(auto)
    return [
        Dialect(is_auto, _kept(pool) if is_auto else frozenset(), mixed)
        for pool, is_auto in zip(pools, auto, strict=True)
    ]


def _kept(pool: NodePool) -> frozenset[str]:
    return frozenset(entry.key for entry in pool.spec.template.spec.requirements if auto_mode_key(entry.key))


class PoolTypes:
    """The types that each pool sees, place by place in the order of the catalogue."""

    def __init__(self, catalogue: Catalogue, pools: Sequence[NodePool]) -> None:
        self.catalogue = catalogue
        spoken = dialects(pools)
        self._plain = Dialect(mixed=any(entry.mixed for entry in spoken))
        self._by_dialect: dict[Dialect, tuple[InstanceType, ...]] = {}
        self.names = [pool.metadata.name for pool in pools]
        self.seen: list[tuple[InstanceType, ...]] = [self._in(dialect) for dialect in spoken]

    def _in(self, dialect: Dialect) -> tuple[InstanceType, ...]:
        found = self._by_dialect.get(dialect)
        if found is None:
            kinds = self.catalogue.instance_types
            found = kinds if dialect == PLAIN else tuple(in_dialect(kind, dialect) for kind in kinds)
            self._by_dialect[dialect] = found
        return found

    @property
    def plain(self) -> tuple[InstanceType, ...]:
        """Return the types as nodes without a pool see them."""
        return self._in(self._plain)

    def joined(self, base: Sequence[InstanceType] | None = None) -> Catalogue:
        """Return one catalogue: a type that is the same in every pool stays one type, others become variants.

        `base`: the types as nodes without a pool see them, place by place.
        """
        plain = self.plain if base is None else base
        if all(row is self.catalogue.instance_types for row in (*self.seen, plain)):
            return self.catalogue
        kinds: list[InstanceType] = []
        for place, kind in enumerate(plain):
            pools: dict[int, list[str]] = {}
            distinct: dict[int, InstanceType] = {}
            for name, row in zip(self.names, self.seen, strict=True):
                key = id(row[place])
                distinct[key] = row[place]
                pools.setdefault(key, []).append(name)
            if len(distinct) == 1:
                kinds.extend(distinct.values())
                continue
            kinds.append(kind)
            kinds.extend(
                replace(entry, pools=tuple(sorted(pools[key]))) for key, entry in distinct.items() if entry is not kind
            )
        return replace(self.catalogue, instance_types=tuple(kinds))


def in_dialect(kind: InstanceType, dialect: Dialect) -> InstanceType:
    """Return a type with the labels of a dialect; EKS Auto Mode never launches its excluded sizes."""
    entries: list[SelectorRequirement] = []
    for entry in kind.requirements:
        other = auto_mode_key(entry.key)
        if other is None:
            entries.append(entry)
            continue
        if not dialect.auto or entry.key in dialect.kept:
            entries.append(entry)
        elif dialect.mixed:
            entries.append(_absent(entry.key))
        if dialect.auto:
            entries.append(SelectorRequirement(other, entry.operator, entry.values, entry.min_values))
        elif dialect.mixed:
            entries.append(_absent(other))
    if dialect.auto:
        entries.append(SelectorRequirement(key=COMPUTE_TYPE, operator="In", values=(AUTO,)))
    elif dialect.mixed:
        entries.append(_absent(COMPUTE_TYPE))
    offerings = kind.offerings
    if dialect.auto and is_excluded(kind):
        offerings = tuple(replace(offering, available=False) for offering in offerings)
    return replace(kind, requirements=tuple(entries), offerings=offerings)


def is_excluded(kind: InstanceType) -> bool:
    """Return whether EKS Auto Mode launches no machine of a type: nano, micro, small, or not more than one CPU."""
    sizes = {value for entry in kind.requirements if entry.key == _SIZE for value in entry.values}
    sizes.add(kind.name.rpartition(".")[2])
    return bool(sizes & EXCLUDED_SIZES) or kind.capacity.get("cpu", 0) <= 1000


def _absent(key: str) -> SelectorRequirement:
    return SelectorRequirement(key=key, operator="DoesNotExist")
