"""Keeps the controller's prices current, and says how old they are.

With `aws-live:REGION` AWS is queried every hour, in a separate thread that never delays the controller; changes go to
the engine. With a file or a built-in table only the age is shown. Decides nothing.
"""

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from dovetail.api.findings import InputError
from dovetail.lifecycle.messages import CatalogueChanged
from dovetail.live.observability.logs import Log
from dovetail.live.prices.aws_prices import LivePrices, PricesError
from dovetail.model.catalogue import Catalogue

if TYPE_CHECKING:
    from dovetail.live.run import Controller

PREFIX: Final = "aws-live:"
OLD_AFTER: Final = timedelta(days=90)
_REFRESH_SECONDS: Final = 3600.0
_RETRY_SECONDS: Final = 300.0
_START_SECONDS: Final = 45.0
_REGION: Final = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}")
T = TypeVar("T")


def live_prices(where: str | None, cache: str | None = None) -> LivePrices | None:
    """Return the source of live prices where `--catalog` names one; InputError where it names no region."""
    if where is None or not where.startswith(PREFIX):
        return None
    region = where.removeprefix(PREFIX)
    if not _REGION.fullmatch(region):
        raise InputError(f"--catalog {where} names no region; write aws-live:us-east-1")
    return LivePrices(region=region, cache=Path(cache) / f"ec2-{region}.json.gz" if cache else None)


async def begin(prices: LivePrices, log: Log, patience: float = _START_SECONDS) -> Catalogue:
    """Return the table to start with, and log its source. AWS has to answer before a probe would fail."""
    try:
        table = prices.recent() or await _ask_or_fall_back(prices, patience)
    except PricesError as error:
        raise InputError(f"{error}; give --catalog aws:REGION or a file, or check the credentials") from None
    _warn(prices, log)
    log.info("prices", source=table.source, as_of=table.as_of, types=len(table.instance_types))
    return table


async def _ask_or_fall_back(prices: LivePrices, patience: float) -> Catalogue:
    try:
        return await asyncio.wait_for(apart(prices.refresh), patience)
    except TimeoutError:
        return prices.fallback(PricesError(f"AWS has not told the prices of {prices.region} within {patience:g} s"))
    except PricesError as error:
        return prices.fallback(error)


def watch_prices(
    table: Catalogue,
    prices: LivePrices | None,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> "Callable[[Controller], Awaitable[None]]":
    """Return the background task for prices: their age as a metric, a warning when old, new ones when live."""

    async def price_feed(controller: "Controller") -> None:
        if prices is not None:
            await _follow(controller, prices, table, pause)
            return
        dated = _date(table.as_of)
        if dated is None:
            return
        controller.metrics.price_age.set_function(lambda: (now() - dated).total_seconds())
        if now() - dated > OLD_AFTER:
            controller.log.warning("the price table is old", source=table.source, as_of=table.as_of)

    return price_feed


async def _follow(
    controller: "Controller", prices: LivePrices, told: Catalogue, pause: Callable[[float], Awaitable[None]]
) -> None:
    controller.metrics.price_age.set_function(lambda: _seconds(prices))
    wait = _RETRY_SECONDS if prices.staleness() else _REFRESH_SECONDS
    while True:
        await pause(wait)
        try:
            table = await apart(prices.refresh)
        except PricesError as error:
            wait = _RETRY_SECONDS
            controller.log.warning(prices.staleness() or "the prices in use stay", why=str(error))
            continue
        wait = _REFRESH_SECONDS
        _warn(prices, controller.log)
        if table.instance_types != told.instance_types:
            told = table
            controller.log.info("prices have changed", source=table.source, as_of=table.as_of)
            await controller.put(CatalogueChanged(catalogue=table))


def _warn(prices: LivePrices, log: Log) -> None:
    for text in prices.warnings:
        log.warning(text)
    prices.warnings.clear()


def _seconds(prices: LivePrices) -> float:
    age = prices.age()
    return 0.0 if age is None else age.total_seconds()


def _date(text: str) -> datetime | None:
    """Return the date of a table; None if it has none or it can't be read."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


async def apart(work: Callable[[], T]) -> T:
    """Run it in a daemon thread: AWS may take minutes to fail."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def resolve(set_it: Callable[[], None]) -> None:
        def unless_gone() -> None:
            if not done.done():
                set_it()

        if not loop.is_closed():
            loop.call_soon_threadsafe(unless_gone)

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            fault = error
            resolve(lambda: done.set_exception(fault))
        else:
            resolve(lambda: done.set_result(result))

    threading.Thread(target=run, name="prices", daemon=True).start()
    return await done
