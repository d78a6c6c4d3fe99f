"""Reads a catalogue: `CLOUD:REGION` for a built-in table, or a JSON file (plain or gzip) in the contract's form.

Refuses what a decision could not trust (a negative price, a type without a name, two types with the same name) with one
sentence that names the type and what to write. Prices are read as decimals, never as binary floats.
"""

import gzip
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec

from dovetail.model.catalogue import Catalogue, CatalogueError, InstanceType, Offering
from dovetail.model.labels.requirements import OperatorError, Requirements
from dovetail.model.money import parse_money
from dovetail.model.objects import ApiStruct, ResourceList, SelectorRequirement
from dovetail.model.quantity import QuantityError, resource_amount

_PRICE_END: Final = 10**9

__all__ = ["CLOUDS", "CatalogueError", "decode_catalogue", "encode_catalogue", "load_catalogue"]


def _aws(region: str) -> Catalogue:
    from dovetail.api.clouds.aws import ec2_catalogue

    return ec2_catalogue(region)


def _azure(region: str) -> Catalogue:
    from dovetail.api.clouds.azure import azure_catalogue

    return azure_catalogue(region)


def _gcp(region: str) -> Catalogue:
    from dovetail.api.clouds.gcp import gcp_catalogue

    return gcp_catalogue(region)


CLOUDS: Final[dict[str, Callable[[str], Catalogue]]] = {"aws": _aws, "azure": _azure, "gcp": _gcp}
"""The clouds with built-in tables."""


class _WireOffering(ApiStruct, frozen=True):
    capacity_type: str
    zone: str
    price: Decimal | None
    available: bool = True
    reservation_id: str = ""
    reservation_capacity: int = 0


class _WireType(ApiStruct, frozen=True):
    name: str
    requirements: tuple[SelectorRequirement, ...] = ()
    capacity: ResourceList = {}
    overhead: ResourceList = {}
    offerings: tuple[_WireOffering, ...] = ()


class _WireCatalogue(ApiStruct, frozen=True):
    instance_types: tuple[_WireType, ...]
    source: str = ""
    as_of: str = ""


def load_catalogue(where: str | Path) -> Catalogue:
    """Return the catalogue that `--catalog` names: a built-in table or a file."""
    text = str(where)
    cloud, _, region = text.partition(":")
    if cloud in CLOUDS and region:
        try:
            return CLOUDS[cloud](region)
        except KeyError:
            raise CatalogueError(f"--catalog {text}: {_no_table(cloud, region)}") from None
    path = Path(text)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CatalogueError(
            f"catalogue {text} can't be read ({error.strerror}): give a JSON file, "
            "or a built-in table such as aws:us-east-1 (dovetail catalog show lists them)"
        ) from None
    return decode_catalogue(raw, source=path.name)


def _no_table(cloud: str, region: str) -> str:
    from dovetail.api.clouds.tables import regions

    names = [entry.name for entry in regions() if entry.cloud == cloud]
    import difflib  # only mistakes need it

    near = difflib.get_close_matches(region, names, n=1)
    hint = f"did you mean {cloud}:{near[0]}? " if near else ""
    return f"there is no built-in table for it; {hint}'dovetail catalog show {cloud}' lists the regions"


def decode_catalogue(raw: bytes, *, source: str = "") -> Catalogue:
    """Return a catalogue from the bytes of its file."""
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error):
            raise CatalogueError(f"catalogue {source}: the gzip is damaged or cut short; copy the file again") from None
    try:
        wire = msgspec.json.decode(raw, type=_WireCatalogue)
    except RecursionError:
        raise CatalogueError(f"catalogue {source}: it is nested too deep to be one") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CatalogueError(
            f'catalogue {source}: {error}; wanted is {{"instanceTypes": [{{"name", "requirements", "capacity", '
            f'"overhead", "offerings"}}]}}'
        ) from None
    types: dict[str, InstanceType] = {}
    for entry in wire.instance_types:
        if entry.name in types:
            raise CatalogueError(f"catalogue {source}: instance type {entry.name} is there twice; keep one")
        types[entry.name] = _instance_type(entry, source)
    return Catalogue(
        instance_types=tuple(types[name] for name in sorted(types)), source=wire.source or source, as_of=wire.as_of
    )


def encode_catalogue(catalogue: Catalogue) -> bytes:
    """Return the contract's JSON form of a catalogue, so that you can keep any built-in or live table as a file."""
    from dovetail.model.money import format_money
    from dovetail.model.quantity import format_amount

    def amounts(resources: dict[str, int]) -> dict[str, str]:
        return {name: format_amount(name, amount) for name, amount in sorted(resources.items())}

    wire = {
        "source": catalogue.source,
        "asOf": catalogue.as_of,
        "instanceTypes": [
            {
                "name": entry.name,
                "requirements": entry.requirements,
                "capacity": amounts(entry.capacity),
                "overhead": amounts(entry.overhead),
                "offerings": [
                    {
                        "capacityType": offering.capacity_type,
                        "zone": offering.zone,
                        "price": msgspec.Raw(format_money(offering.price).encode()),
                        "available": offering.available,
                        **(
                            {
                                "reservationId": offering.reservation_id,
                                "reservationCapacity": offering.reservation_capacity,
                            }
                            if offering.reservation_id
                            else {}
                        ),
                    }
                    for offering in entry.offerings
                ],
            }
            for entry in catalogue.instance_types
        ],
    }
    return msgspec.json.encode(wire)


def _instance_type(entry: _WireType, source: str) -> InstanceType:
    try:
        capacity = {name: resource_amount(name, amount) for name, amount in entry.capacity.items()}
        overhead = {name: resource_amount(name, amount) for name, amount in entry.overhead.items()}
        Requirements.from_spec(entry.requirements)
    except (QuantityError, OperatorError) as error:
        raise CatalogueError(f"catalogue {source}: instance type {entry.name}: {error}") from None
    offerings = []
    for offering in entry.offerings:
        if offering.price is None:
            raise CatalogueError(
                f"catalogue {source}: instance type {entry.name} has no price in {offering.zone or 'any zone'} yet; "
                "write dollars per hour in place of every null"
            )
        if not offering.price.is_finite() or not 0 <= offering.price < _PRICE_END:
            raise CatalogueError(
                f"catalogue {source}: instance type {entry.name} has the price {str(offering.price)[:40]} in "
                f"{offering.zone}; write dollars per hour, 0 or more and less than a billion"
            )
        offerings.append(
            Offering(
                capacity_type=offering.capacity_type,
                zone=offering.zone,
                price=parse_money(offering.price),
                price_float=float(offering.price),
                available=offering.available,
                reservation_id=offering.reservation_id,
                reservation_capacity=offering.reservation_capacity,
            )
        )
    return InstanceType(
        name=entry.name,
        requirements=entry.requirements,
        capacity=capacity,
        overhead=overhead,
        offerings=tuple(offerings),
    )
