"""Live EC2 prices and types from the AWS API (the `aws` extra). Cached on disk; stale prices are reported.

AWS's spot prices, on-demand prices and the types offered in each zone replace the built-in figures;
labels and overheads come from the built-in specifications. A type that the specifications don't know, or a price that
AWS does not return, is omitted: an unknown price is never part of a cost action. While the API is unreachable the last
good table is used, with its age shown and a warning; nothing else changes. Knows nothing of the controller:
`live.prices.price_feed` calls it periodically.
"""

import contextlib
import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

from dovetail.api.catalogue import CatalogueError, decode_catalogue, encode_catalogue
from dovetail.api.clouds.aws import ec2_catalogue, instance_type, specifications
from dovetail.model.catalogue import Catalogue

FRESH_FOR: Final = timedelta(hours=1)
STALE_AFTER: Final = timedelta(hours=6)
_PRICING_API_REGION: Final = "us-east-1"
Client = Any


class PricesError(Exception):
    """AWS can't be asked; one sentence for people."""


@dataclass(slots=True, kw_only=True)
class LivePrices:
    """The table of one region. `refresh` asks AWS; `current` is the last good answer."""

    region: str
    cache: Path | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ec2: Client = None
    pricing: Client = None
    current: Catalogue | None = None
    fetched: datetime | None = None
    warnings: list[str] = field(default_factory=list)

    def load(self) -> Catalogue:
        """Return the table to start with: this hour's cache, AWS, an older cache, the built-in table, in this order."""
        table = self.recent()
        if table is not None:
            return table
        try:
            return self.refresh()
        except PricesError as error:
            return self.fallback(error)

    def recent(self) -> Catalogue | None:
        """Return the cached table if it is of this hour."""
        cached, age = self._read_cache(), self.age()
        return cached if age is not None and timedelta(0) <= age < FRESH_FOR else None

    def fallback(self, why: PricesError) -> Catalogue:
        """Return a substitute for AWS, with a warning: an older cache or the built-in table; else raise the error."""
        table = self._read_cache() or self._built_in()
        if table is None:
            raise why
        self.warnings.append(f"{why}; using the {table.source} of {table.as_of} until it answers")
        return table

    def refresh(self) -> Catalogue:
        """Ask AWS for everything; on failure the last good table stays and the error says so."""
        try:
            self._connect()
            zones = self._zones()
            offered = self._offered(zones)
            spot = self._spot(zones)
            on_demand = self._on_demand()
        except PricesError:
            raise
        except Exception as error:
            raise PricesError(f"EC2 prices of {self.region} can't be read ({type(error).__name__})") from None
        if not on_demand or not spot:
            # With half an answer, half of the nodes would seem to have no price.
            missing = "spot" if on_demand else "on-demand"
            raise PricesError(f"AWS gave no {missing} price for {self.region}; check the region and the permissions")
        known = specifications()
        types = [
            instance_type(
                known[name],
                self.region,
                on_demand.get(name, ""),
                [(zones[z], z, spot.get((name, z), "")) for z in where],
            )
            for name, where in sorted(offered.items())
            if name in known
        ]
        unknown = sorted(set(offered) - set(known))
        if unknown:
            self.warnings.append(
                f"{len(unknown)} instance types are new to this version and left out, e.g. {unknown[0]}"
            )
        moment = self.now()
        table = Catalogue(
            instance_types=tuple(entry for entry in types if entry.offerings),
            source=self._source,
            as_of=moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        if not table.instance_types:
            raise PricesError(f"AWS gave no usable type for {self.region}; check the region and the role's permissions")
        self.current, self.fetched = table, moment
        self._write_cache(table)
        return table

    @property
    def _source(self) -> str:
        return f"EC2 prices of {self.region}"

    def age(self) -> timedelta | None:
        """Return how old the table in use is."""
        return self.now() - self.fetched if self.fetched is not None else None

    def staleness(self) -> str:
        """Return a warning if the table is old; nothing while it is fresh."""
        age = self.age()
        if age is None or age < STALE_AFTER:
            return ""
        assert self.fetched is not None
        return f"EC2 prices of {self.region} are those of {self.fetched:%Y-%m-%d %H:%M} UTC: AWS has not answered since"

    # ------------------------------------------------------------ asking AWS

    def _connect(self) -> None:
        if self.ec2 is not None and self.pricing is not None:
            return
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            raise PricesError("live prices need the aws extra: pip install 'dovetail-k8s[aws]'") from None
        config = Config(retries={"max_attempts": 8, "mode": "adaptive"}, connect_timeout=10, read_timeout=60)
        self.ec2 = self.ec2 or boto3.client("ec2", region_name=self.region, config=config)
        self.pricing = self.pricing or boto3.client("pricing", region_name=_PRICING_API_REGION, config=config)

    def _zones(self) -> dict[str, str]:
        """Return zone ids by zone name, without Local and Wavelength zones."""
        answer = self.ec2.describe_availability_zones()
        return {
            zone["ZoneName"]: zone.get("ZoneId", zone["ZoneName"])
            for zone in answer["AvailabilityZones"]
            if zone.get("ZoneType", "availability-zone") == "availability-zone"
        }

    def _offered(self, zones: dict[str, str]) -> dict[str, list[str]]:
        offered: dict[str, list[str]] = {}
        pages = self._pages(self.ec2, "describe_instance_type_offerings", LocationType="availability-zone")
        for page in pages:
            for entry in page["InstanceTypeOfferings"]:
                if entry["Location"] in zones:
                    offered.setdefault(entry["InstanceType"], []).append(entry["Location"])
        return {name: sorted(set(where)) for name, where in offered.items()}

    def _spot(self, zones: dict[str, str]) -> dict[tuple[str, str], str]:
        """Return the latest spot price of each type and zone."""
        latest: dict[tuple[str, str], tuple[datetime, str]] = {}
        pages = self._pages(
            self.ec2,
            "describe_spot_price_history",
            ProductDescriptions=["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
            StartTime=self.now(),
        )
        for page in pages:
            for entry in page["SpotPriceHistory"]:
                key = (entry["InstanceType"], entry["AvailabilityZone"])
                stamp = entry["Timestamp"]
                if key[1] in zones and _is_price(entry["SpotPrice"]) and (key not in latest or stamp > latest[key][0]):
                    latest[key] = (stamp, entry["SpotPrice"])
        return {key: price for key, (_, price) in latest.items()}

    def _on_demand(self) -> dict[str, str]:
        """Return dollars per hour for Linux, shared tenancy, no software, no licence."""
        fields = {
            "regionCode": self.region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
            "licenseModel": "No License required",
        }
        filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in fields.items()]
        prices: dict[str, str] = {}
        for page in self._pages(self.pricing, "get_products", ServiceCode="AmazonEC2", Filters=filters):
            for text in page["PriceList"]:
                product = json.loads(text) if isinstance(text, str) else text
                name = product.get("product", {}).get("attributes", {}).get("instanceType")
                price = next(iter(_hourly(product)), None)
                if name and price is not None:
                    prices[name] = price
        return prices

    @staticmethod
    def _pages(client: Client, call: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        yield from client.get_paginator(call).paginate(**arguments)

    # ------------------------------------------------------------ the cache

    def _read_cache(self) -> Catalogue | None:
        """Return the cached table, which becomes the current one; None where there is none that can be read."""
        if self.cache is None:
            return None
        try:
            table = decode_catalogue(self.cache.read_bytes(), source=self.cache.name)
            fetched = datetime.fromisoformat(table.as_of)
        except (OSError, CatalogueError, ValueError):
            return None
        if table.source != self._source or fetched.tzinfo is None:
            return None
        self.current, self.fetched = table, fetched
        return table

    def _built_in(self) -> Catalogue | None:
        try:
            table = ec2_catalogue(self.region)
        except KeyError:
            return None
        self.current, self.fetched = table, datetime.fromisoformat(table.as_of).replace(tzinfo=UTC)
        return table

    def _write_cache(self, table: Catalogue) -> None:
        """Write the cache atomically; failure is not an error."""
        if self.cache is None:
            return
        with contextlib.suppress(OSError):
            self.cache.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.cache.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(gzip.compress(encode_catalogue(table), mtime=0))
                Path(name).replace(self.cache)
            except OSError:
                Path(name).unlink(missing_ok=True)


def _hourly(product: dict[str, Any]) -> Iterable[str]:
    for term in (product.get("terms", {}).get("OnDemand") or {}).values():
        for dimension in (term.get("priceDimensions") or {}).values():
            price = (dimension.get("pricePerUnit") or {}).get("USD")
            if dimension.get("unit") == "Hrs" and price is not None and _is_price(price) and Decimal(price) > 0:
                yield price


def _is_price(text: str) -> bool:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return False
    return amount.is_finite() and amount >= 0
