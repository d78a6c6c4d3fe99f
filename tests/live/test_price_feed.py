"""The controller's price feed: queried every hour, reported on change, with a warning if prices are missing."""

import asyncio
import io
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import generate_latest

from dovetail.api.findings import InputError
from dovetail.lifecycle.messages import CatalogueChanged, Event
from dovetail.live.observability.logs import Log
from dovetail.live.observability.metrics import Metrics
from dovetail.live.prices.aws_prices import LivePrices, PricesError
from dovetail.live.prices.price_feed import apart, begin, live_prices, watch_prices
from dovetail.model.catalogue import Catalogue
from tests.support.design_world import kind

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@dataclass
class Host:
    """The part of a controller that the feed needs."""

    text: io.StringIO = field(default_factory=io.StringIO)
    metrics: Metrics = field(default_factory=Metrics)
    events: list[Event] = field(default_factory=list)

    @property
    def log(self) -> Log:
        return Log("debug", self.text)

    async def put(self, event: Event) -> None:
        self.events.append(event)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.getvalue().splitlines()]

    def age(self) -> float:
        text = generate_latest(self.metrics.registry).decode()
        return float(next(line for line in text.splitlines() if line.startswith("dovetail_catalogue_age")).split()[1])


class Source(LivePrices):
    """Prices of the test: one answer after another; an error is raised."""

    def script(self, *answers: Catalogue | PricesError) -> None:
        self.answers = list(answers)

    def refresh(self) -> Catalogue:
        answer = self.answers.pop(0)
        if isinstance(answer, PricesError):
            raise answer
        self.current, self.fetched = answer, self.now()
        return answer


def _table(price: str) -> Catalogue:
    return Catalogue(instance_types=(kind("m5.large", price),), source="EC2 prices of us-east-1", as_of="now")


class Hours:
    """A clock that advances when the feed sleeps, and stops the feed after a while."""

    def __init__(self, hours: float) -> None:
        self.now = NOW
        self.end = NOW + timedelta(hours=hours)
        self.waits: list[float] = []

    def __call__(self) -> datetime:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += timedelta(seconds=seconds)
        if self.now > self.end:
            raise asyncio.CancelledError


def _follow(prices: Source, hours: Hours) -> Host:
    host = Host()
    feed: Callable[[Any], Awaitable[None]] = watch_prices(_table("0.1"), prices, now=hours, pause=hours.pause)

    async def until_the_end() -> None:
        with pytest.raises(asyncio.CancelledError):
            await feed(host)

    asyncio.run(until_the_end())
    return host


def test_a_new_price_reaches_the_engine_and_an_equal_one_does_not() -> None:
    """Prices are queried every hour; only a changed table is reported."""
    hours = Hours(3)
    prices = Source(region="us-east-1", now=hours, current=_table("0.1"), fetched=NOW)
    prices.script(_table("0.1"), _table("0.2"), _table("0.2"))
    host = _follow(prices, hours)
    told = [event.catalogue for event in host.events if isinstance(event, CatalogueChanged)]
    assert told == [_table("0.2")]
    assert set(hours.waits) == {3600.0}


def test_a_day_without_aws_changes_nothing_but_a_warning() -> None:
    """After 24 hours of failures the table stays; each failure is a warning, after six hours with the date."""
    hours = Hours(24)
    prices = Source(region="us-east-1", now=hours, current=_table("0.1"), fetched=NOW)
    prices.script(*[PricesError("AWS is away")] * 400)
    host = _follow(prices, hours)
    assert host.events == []
    assert prices.current == _table("0.1")
    assert {line["level"] for line in host.lines()} == {"warning"}
    assert host.lines()[0]["message"] == "the prices in use stay"
    assert "2026-11-01 12:00 UTC" in host.lines()[-1]["message"]
    assert host.age() >= 23 * 3600


def test_aws_is_asked_more_often_while_it_is_away_and_then_all_is_well() -> None:
    """The feed retries every five minutes after a failure and every hour after a success; the age restarts."""
    hours = Hours(2.5)
    prices = Source(region="us-east-1", now=hours, current=_table("0.1"), fetched=NOW)
    prices.script(PricesError("away"), PricesError("away"), _table("0.3"), _table("0.3"), _table("0.3"))
    host = _follow(prices, hours)
    assert hours.waits[:4] == [3600.0, 300.0, 300.0, 3600.0]
    assert len(host.events) == 1
    assert host.age() <= 3600


def test_the_age_of_a_file_or_built_in_table_is_shown() -> None:
    """A dated table without live prices has its age as a metric; after ninety days a warning names the date."""
    for as_of, warned in (("2026-10-31", False), ("2026-01-01", True)):
        host = Host()
        table = Catalogue(instance_types=(), source="built-in EC2 table of us-east-1", as_of=as_of)
        asyncio.run(watch_prices(table, None, now=lambda: NOW)(host))  # type: ignore[arg-type]
        assert host.age() == (NOW - datetime.fromisoformat(as_of).replace(tzinfo=UTC)).total_seconds()
        assert [line["as_of"] for line in host.lines()] == ([as_of] if warned else [])


def test_a_table_without_a_date_has_no_age() -> None:
    """A catalogue file without a date has no age."""
    host = Host()
    asyncio.run(watch_prices(Catalogue(instance_types=(), as_of="spring"), None)(host))  # type: ignore[arg-type]
    assert (host.age(), host.lines()) == (0.0, [])


@pytest.mark.parametrize("where", ["aws-live:", "aws-live:../../etc", "aws-live:us-east-1/x", "aws-live:US-EAST-1"])
def test_a_region_is_a_region(where: str) -> None:
    """An invalid region is rejected before it becomes part of a URL or a path."""
    with pytest.raises(InputError, match="names no region"):
        live_prices(where, "cache")


def test_other_catalogues_are_not_live() -> None:
    """`aws:REGION`, a file and an empty value are not live catalogues."""
    assert [live_prices(where) for where in (None, "aws:us-east-1", "catalogue.json")] == [None, None, None]
    made = live_prices("aws-live:eu-west-1", "cache")
    assert made is not None
    assert made.cache is not None
    assert (made.region, str(made.cache)) == ("eu-west-1", "cache/ec2-eu-west-1.json.gz")


def test_the_start_says_what_stands_in() -> None:
    """Without AWS at the start the source's warnings are logged; without any prices it fails with one sentence."""
    text = io.StringIO()
    prices = Source(region="us-east-1", now=lambda: NOW)
    prices.script(PricesError("EC2 prices of us-east-1 can't be read (Timeout)"))
    table = asyncio.run(begin(prices, Log("info", text)))
    assert table.source == "built-in EC2 table of us-east-1"
    levels = [json.loads(line)["level"] for line in text.getvalue().splitlines()]
    assert levels == ["warning", "info"]
    prices = Source(region="ap-east-2", now=lambda: NOW)
    prices.script(PricesError("EC2 prices of ap-east-2 can't be read (Timeout)"))
    with pytest.raises(InputError, match="give --catalog aws:REGION or a file"):
        asyncio.run(begin(prices, Log("info", text)))


def test_the_start_does_not_wait_for_ever() -> None:
    """If AWS hangs, the substitute is used before a probe times out."""
    text, release = io.StringIO(), threading.Event()

    class Hanging(LivePrices):
        def refresh(self) -> Catalogue:
            release.wait()
            raise PricesError("too late")

    table = asyncio.run(begin(Hanging(region="us-east-1", now=lambda: NOW), Log("info", text), patience=0.05))
    release.set()
    assert table.source == "built-in EC2 table of us-east-1"
    assert (
        "AWS has not told the prices of us-east-1 within 0.05 s"
        in json.loads(text.getvalue().splitlines()[0])["message"]
    )


def test_a_question_that_hangs_does_not_hold_up_the_end() -> None:
    """The controller can stop while AWS hangs, without waiting for the thread."""
    release = threading.Event()

    async def ask() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(apart(release.wait), 0.05)

    asyncio.run(ask())
    release.set()
