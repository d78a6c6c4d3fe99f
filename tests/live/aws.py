"""AWS for tests: moto simulates EC2; the price list, which moto lacks, is answered at the HTTP level."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config

Product = dict[str, Any]


class _Raw(io.BytesIO):
    def stream(self, **_: object) -> Iterator[bytes]:
        while chunk := self.read(4096):
            yield chunk


def answer(url: str, status: int, body: bytes, kind: str = "application/x-amz-json-1.1") -> AWSResponse:
    """Return an HTTP answer as botocore sees it."""
    return AWSResponse(url, status, {"content-type": kind}, _Raw(body))


def client(service: str, **options: Any) -> Any:
    """Return a client with invalid keys."""
    return boto3.client(
        service,
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
        config=Config(**options) if options else None,
    )


def product(name: str, price: str, **attributes: str) -> Product:
    """Return an entry of the price list."""
    return {
        "product": {"attributes": {"instanceType": name, **attributes}},
        "terms": {"OnDemand": {"t": {"priceDimensions": {"d": {"unit": "Hrs", "pricePerUnit": {"USD": price}}}}}},
    }


def price_list(*pages: list[Product]) -> Any:
    """Return a price list client that returns these pages in order."""
    made = client("pricing")
    asked: list[dict[str, Any]] = []

    def respond(request: Any, **_: object) -> AWSResponse:
        body = json.loads(request.body)
        asked.append(body)
        page = int(body.get("NextToken", "0"))
        tree: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": [json.dumps(entry) for entry in pages[page]]}
        if page + 1 < len(pages):
            tree["NextToken"] = str(page + 1)
        return answer(request.url, 200, json.dumps(tree).encode())

    made.meta.events.register_first("before-send.pricing.GetProducts", respond)
    made.asked = asked
    return made


class Away:
    """A client of an unreachable service: every request fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> Any:
            self.calls += 1
            raise self.error

        return fail


class SmallEc2:
    """A region of two zones and three types, for tests that don't depend on EC2's answers."""

    def __init__(self) -> None:
        self.when = datetime(2026, 11, 1, tzinfo=UTC)

    def describe_availability_zones(self) -> dict[str, Any]:
        zones = [("us-east-1a", "availability-zone"), ("us-east-1b", "availability-zone"), ("us-atl-1", "local-zone")]
        return {"AvailabilityZones": [{"ZoneName": n, "ZoneId": f"id-{n}", "ZoneType": kind} for n, kind in zones]}

    def get_paginator(self, call: str) -> Any:
        places = [
            (kind, zone) for kind in ("c5.xlarge", "m5.large", "m5.xlarge") for zone in ("us-east-1a", "us-east-1b")
        ]
        if call == "describe_instance_type_offerings":
            rows = [{"InstanceType": kind, "Location": zone} for kind, zone in places]
            return _Pages([{"InstanceTypeOfferings": rows}])
        spot = [
            {"InstanceType": kind, "AvailabilityZone": zone, "SpotPrice": "0.03", "Timestamp": self.when}
            for kind, zone in places
        ]
        return _Pages([{"SpotPriceHistory": spot}])


class _Pages:
    def __init__(self, pages: list[dict[str, Any]]) -> None:
        self._pages = pages

    def paginate(self, **_: object) -> list[dict[str, Any]]:
        return self._pages
