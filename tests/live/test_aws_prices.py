"""Live EC2 prices: pages, throttling, gaps, age, cache. moto simulates EC2; the tests answer for the price list."""

import gzip
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from dovetail.live.prices.aws_prices import STALE_AFTER, LivePrices, PricesError
from dovetail.model.catalogue import Catalogue
from dovetail.model.money import parse_money
from tests.live.aws import Away, SmallEc2, answer, client, price_list, product
from tests.support.design_world import Town, kind, moved

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
THROTTLED = ClientError({"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, "GetProducts")
NO_NETWORK = EndpointConnectionError(endpoint_url="https://ec2.us-east-1.example")
LIST = [product("m5.large", "0.0960000000"), product("c5.xlarge", "0.1700000000")]


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a client of moto's EC2."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with mock_aws():
        yield client("ec2")


@pytest.fixture
def small() -> SmallEc2:
    """Return a small EC2."""
    return SmallEc2()


def _prices(ec2: Any, *pages: list[Any], **more: Any) -> LivePrices:
    return LivePrices(region="us-east-1", now=more.pop("now", Clock()), ec2=ec2, pricing=price_list(*pages), **more)


def _offerings(table: Catalogue, name: str) -> dict[tuple[str, str], int]:
    entry = next(item for item in table.instance_types if item.name == name)
    return {(offering.capacity_type, offering.zone): offering.price for offering in entry.offerings}


def test_types_and_prices_come_from_aws(ec2: Any) -> None:
    """On-demand prices come from the price list, spot and zones from EC2; the table has its source and date."""
    table = _prices(ec2, LIST).refresh()
    offerings = _offerings(table, "m5.large")
    assert offerings["on-demand", "us-east-1a"] == parse_money("0.096")
    assert offerings["spot", "us-east-1a"] == parse_money("0.00001")
    assert (table.source, table.as_of) == ("EC2 prices of us-east-1", "2026-11-01T12:00:00Z")


def test_the_price_list_is_asked_for_plain_linux(small: Any) -> None:
    """The query filters by shared tenancy, Linux, no licence, no software, and this region."""
    prices = _prices(small, LIST)
    prices.refresh()
    asked = {entry["Field"]: entry["Value"] for entry in prices.pricing.asked[0]["Filters"]}
    assert asked["regionCode"] == "us-east-1"
    assert (asked["operatingSystem"], asked["tenancy"], asked["preInstalledSw"]) == ("Linux", "Shared", "NA")


def test_every_page_of_the_price_list_is_read(small: Any) -> None:
    """Three pages, of which one is empty, count as one list."""
    prices = _prices(small, [LIST[0]], [], [LIST[1]])
    table = prices.refresh()
    assert [entry.get("NextToken") for entry in prices.pricing.asked] == [None, "1", "2"]
    for name, price in (("m5.large", "0.096"), ("c5.xlarge", "0.17")):
        assert _offerings(table, name)["on-demand", "us-east-1a"] == parse_money(price)


def test_every_page_of_spot_prices_is_read_and_the_latest_counts(ec2: Any) -> None:
    """Spot prices come in pages; the latest price per type and zone wins, and invalid entries are left out."""
    row = (
        "<item><instanceType>m5.large</instanceType><productDescription>Linux/UNIX</productDescription>"
        "<spotPrice>{}</spotPrice><timestamp>{}</timestamp><availabilityZone>{}</availabilityZone></item>"
    )
    pages = [
        row.format("0.0300", "2026-11-01T10:00:00Z", "us-east-1a"),
        row.format("0.0200", "2026-11-01T09:00:00Z", "us-east-1a")
        + row.format("a lot", "2026-11-01T11:00:00Z", "us-east-1a")
        + row.format("0.0100", "2026-11-01T11:00:00Z", "us-east-1-atl-1a"),
        row.format("0.0400", "2026-11-01T11:00:00Z", "us-east-1b"),
    ]
    tokens: list[str] = []

    def respond(request: Any, **_: object) -> Any:
        body = request.body.decode() if isinstance(request.body, bytes) else str(request.body)
        page = next((number for number in (1, 2) if f"NextToken=page{number}" in body), 0)
        tokens.append(f"page{page}")
        following = f"page{page + 1}" if page < 2 else ""
        text = (
            "<DescribeSpotPriceHistoryResponse><spotPriceHistorySet>"
            f"{pages[page]}</spotPriceHistorySet><nextToken>{following}</nextToken></DescribeSpotPriceHistoryResponse>"
        )
        return answer(request.url, 200, text.encode(), "text/xml")

    ec2.meta.events.register_first("before-send.ec2.DescribeSpotPriceHistory", respond)
    offerings = _offerings(_prices(ec2, LIST).refresh(), "m5.large")
    spot = {zone: price for (capacity, zone), price in offerings.items() if capacity == "spot"}
    assert tokens == ["page0", "page1", "page2"]
    assert spot == {"us-east-1a": parse_money("0.03"), "us-east-1b": parse_money("0.04")}


def test_throttling_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two throttled requests are followed by a third, which succeeds."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with mock_aws():
        ec2 = client("ec2", retries={"max_attempts": 8, "mode": "standard"})
        refused: list[int] = []

        def respond(request: Any, **_: object) -> Any:
            if len(refused) == 2:
                return None
            refused.append(503)
            body = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slow</Message></Error></Errors>"
            return answer(request.url, 503, f"{body}<RequestID>1</RequestID></Response>".encode(), "text/xml")

        ec2.meta.events.register_first("before-send.ec2.DescribeInstanceTypeOfferings", respond)
        assert _offerings(_prices(ec2, LIST).refresh(), "m5.large")
        assert refused == [503, 503]


def test_our_own_clients_retry_and_give_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dovetail's own AWS clients slow down when throttled, and have a timeout."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    prices = LivePrices(region="eu-west-1")
    prices._connect()
    for made, region in ((prices.ec2, "eu-west-1"), (prices.pricing, "us-east-1")):
        config = made.meta.config
        assert made.meta.region_name == region
        assert config.retries == {"mode": "adaptive", "total_max_attempts": 9}
        assert config.read_timeout == 60
        assert made._endpoint.http_session._verify, "TLS is verified, by botocore's authorities or the system's"


@pytest.mark.parametrize("error", [THROTTLED, NO_NETWORK, KeyError("shape"), ValueError("digits")])
def test_what_fails_leaves_the_last_good_table(small: Any, error: Exception) -> None:
    """On permanent throttling, no network or an invalid answer, the table in use stays; the error is one sentence."""
    prices = _prices(small, LIST)
    good = prices.refresh()
    prices.pricing = Away(error)
    with pytest.raises(PricesError, match="EC2 prices of us-east-1 can't be read") as caught:
        prices.refresh()
    assert prices.current is good
    assert "example" not in str(caught.value)


@pytest.mark.parametrize("pages", [[[]], [[product("m5.large", "0.0000000000")]], [[{"product": {}}]]])
def test_half_an_answer_is_none(small: Any, pages: list[Any]) -> None:
    """A price list that is empty or all zeros is a failure, so that no node loses its price."""
    with pytest.raises(PricesError, match="no on-demand price"):
        _prices(small, *pages).refresh()


def test_a_type_without_a_price_or_unknown_to_us_is_left_out(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that only EC2 has is left out with a note; a type without an on-demand price is spot only."""
    prices = _prices(small, [*LIST, product("z99.huge", "9.0000000000")])
    known = {"m5.xlarge": ["us-east-1a"], "m5.large": ["us-east-1a"], "z99.huge": ["us-east-1a"]}
    monkeypatch.setattr(LivePrices, "_offered", lambda self, zones: known)
    table = prices.refresh()
    names = [entry.name for entry in table.instance_types]
    assert "z99.huge" not in names
    assert any("new to this version" in text for text in prices.warnings)
    assert {capacity for capacity, _ in _offerings(table, "m5.xlarge")} == {"spot"}


# ---------------------------------------------------------------- age and cache


def test_a_day_without_aws_shows_its_age(small: Any) -> None:
    """Fresh prices print nothing; after six hours without an answer there is a warning with the last time."""
    clock = Clock()
    prices = _prices(small, LIST, now=clock)
    prices.refresh()
    clock.now += STALE_AFTER - timedelta(seconds=1)
    assert prices.staleness() == ""
    clock.now = NOW + timedelta(days=1)
    assert prices.staleness() == (
        "EC2 prices of us-east-1 are those of 2026-11-01 12:00 UTC: AWS has not answered since"
    )
    assert prices.age() == timedelta(days=1)


def test_a_young_cache_spares_the_question(small: Any, tmp_path: Path) -> None:
    """A restart within the hour sends no request to AWS and has the same table."""
    cache = tmp_path / "deep" / "ec2.json.gz"
    first = _prices(small, LIST, cache=cache).refresh()
    away = Away(NO_NETWORK)
    again = LivePrices(region="us-east-1", cache=cache, now=Clock(), ec2=away, pricing=away)
    assert again.load() == first
    assert (away.calls, again.warnings) == (0, [])


def test_an_old_cache_is_better_than_nothing_and_says_so(small: Any, tmp_path: Path) -> None:
    """If AWS is unreachable at the start, yesterday's cache is used, with a warning that names its date."""
    cache = tmp_path / "ec2.json.gz"
    first = _prices(small, LIST, cache=cache).refresh()
    clock = Clock()
    clock.now += timedelta(days=1)
    again = LivePrices(region="us-east-1", cache=cache, now=clock, ec2=Away(NO_NETWORK), pricing=Away(NO_NETWORK))
    assert again.load() == first
    assert "2026-11-01T12:00:00Z" in again.warnings[0]
    assert again.age() == timedelta(days=1)


@pytest.mark.parametrize("contents", [b"", b"{}", b"\x1f\x8b\x08junk", b'{"instanceTypes": [], "asOf": "soon"}'])
def test_a_broken_cache_is_no_cache(tmp_path: Path, contents: bytes) -> None:
    """A truncated or foreign cache file is ignored; the built-in table is used, with its date."""
    cache = tmp_path / "ec2.json.gz"
    cache.write_bytes(contents)
    prices = LivePrices(region="us-east-1", cache=cache, now=Clock(), ec2=Away(NO_NETWORK), pricing=Away(NO_NETWORK))
    assert prices.load().source == "built-in EC2 table of us-east-1"
    assert "built-in EC2 table of us-east-1 of 2026-08-22" in prices.warnings[0]


def test_a_cache_of_another_region_is_not_used(small: Any, tmp_path: Path) -> None:
    """A cache with another region's prices is ignored."""
    cache = tmp_path / "ec2.json.gz"
    _prices(small, LIST, cache=cache).refresh()
    other = LivePrices(region="eu-west-1", cache=cache, now=Clock(), ec2=Away(NO_NETWORK), pricing=Away(NO_NETWORK))
    assert "eu-west-1" in other.load().source


def test_without_aws_cache_and_table_it_stops_with_a_sentence() -> None:
    """A region without a built-in table can't start without AWS."""
    prices = LivePrices(region="ap-east-2", now=Clock(), ec2=Away(NO_NETWORK), pricing=Away(NO_NETWORK))
    with pytest.raises(PricesError, match=r"^EC2 prices of ap-east-2 can't be read \(EndpointConnectionError\)$"):
        prices.load()


def test_a_cache_that_cant_be_written_is_no_failure(small: Any, tmp_path: Path) -> None:
    """If the cache folder is a file, prices still work; a partial file is never left."""
    (tmp_path / "file").write_text("")
    assert _prices(small, LIST, cache=tmp_path / "file" / "ec2.json.gz").refresh().instance_types
    cache = tmp_path / "ec2.json.gz"
    _prices(small, LIST, cache=cache).refresh()
    assert gzip.decompress(cache.read_bytes())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ec2.json.gz", "file"]


# ---------------------------------------------------------------- decisions without a price


@pytest.mark.parametrize("hole", ["type", "price", "zone"])
@pytest.mark.parametrize("company", [False, True], ids=["replace", "delete"])
def test_without_a_price_no_cost_action(hole: str, company: bool) -> None:
    """A node without a catalogue type or price is neither replaced nor deleted to save money."""
    dear = kind("dear", "1.00", cpu=8)
    town = Town(dear, kind("cheap", "0.10", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("n", "dear")
    town.fill("n", 1)
    if company:
        town.node("other", "dear", annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert moved(town.act()) == ("deleteCost" if company else "replaceCost", ("n",)), "with a price it goes"
    if hole == "type":
        del town.kinds["dear"]
    else:
        kept = [o for o in dear.offerings if hole == "zone" and o.zone != "a"]
        town.kinds["dear"] = replace(dear, offerings=tuple(kept))
    assert town.act() is None
    assert town.verdicts()["n"] == "instance-type-known"


def test_a_type_without_a_price_is_never_asked_for() -> None:
    """If the cheapest type has no price, the replacement requests the next one."""
    cheap = kind("cheap", "0.10")
    town = Town(kind("dear", "1.00"), cheap, kind("middle", "0.50"))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("n", "dear")
    town.fill("n", 1)
    command = town.act()
    assert command is not None
    assert command.replacements[0].instance_types == ("cheap", "middle")
    town.kinds["cheap"] = replace(cheap, offerings=())
    command = town.act()
    assert command is not None
    assert command.replacements[0].instance_types == ("middle",)
