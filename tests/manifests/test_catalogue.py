"""The built-in EC2 table and the catalogue file."""

import csv
import gzip

import pytest

from dovetail.api.catalogue import CatalogueError, decode_catalogue, encode_catalogue, load_catalogue
from dovetail.api.clouds.aws import ec2_catalogue
from dovetail.model.money import parse_money
from tests.paths import SHARED, needs_shared


def test_reference_prices_of_us_east_1() -> None:
    """Savings-threshold Appendix A's price table (rounded there) is the built-in table's."""
    prices = {
        entry.name: {offering.price for offering in entry.offerings if offering.capacity_type == "on-demand"}
        for entry in ec2_catalogue("us-east-1").instance_types
    }
    for name, price in (
        ("m8i.large", "0.10584"),
        ("c8i.xlarge", "0.18742"),
        ("m8i.xlarge", "0.21168"),
        ("r8i.xlarge", "0.27784"),
        ("m8i.2xlarge", "0.42336"),
        ("m7i-flex.large", "0.09576"),
    ):
        assert prices[name] == {parse_money(price)}


@needs_shared
@pytest.mark.parametrize("region", ["eu-west-1", "us-east-1", "us-west-2"])
def test_allocatable_is_karpenters(region: str) -> None:
    """Every type's allocatable CPU and memory equal the figures that Karpenter publishes."""
    types = {entry.name: entry for entry in ec2_catalogue(region).instance_types}
    with (SHARED / "catalog" / f"aws-{region}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(types)
    for row in rows:
        allocatable = types[row["name"]].allocatable()
        assert allocatable["cpu"] == int(row["alloc_cpu_m"]), row["name"]
        assert allocatable["memory"] == int(row["alloc_mem_mib"]) << 20, row["name"]
        assert allocatable["pods"] == int(row["max_pods"])
        assert allocatable["ephemeral-storage"] == 17 << 30


def test_spot_prices_are_per_zone() -> None:
    """A type's spot price is that of its zone, and a zone without one has no spot offering."""
    m5 = next(entry for entry in ec2_catalogue("us-east-1").instance_types if entry.name == "m5.large")
    spot = {offering.zone: offering.price for offering in m5.offerings if offering.capacity_type == "spot"}
    assert len(spot) > 3
    assert len(set(spot.values())) > 1
    assert all(price > 0 for price in spot.values())


def test_a_table_survives_its_own_file_form() -> None:
    """Writing a catalogue and reading it again changes nothing, to the last digit of each price."""
    table = ec2_catalogue("eu-west-1")
    again = decode_catalogue(gzip.compress(encode_catalogue(table)), source="x")
    assert again == table


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"{", "truncated"),
        (b"\x1f\x8b\x08\x00", "cut short"),
        (b"{}", "instanceTypes"),
        (b'{"instanceTypes":[{"name":"a"},{"name":"a"}]}', "twice"),
        (b'{"instanceTypes":[{"name":"a","capacity":{"cpu":"lots"}}]}', "lots"),
        (b'{"instanceTypes":[{"name":"a","offerings":[{"capacityType":"spot","zone":"a","price":-1}]}]}', "0 or more"),
        (b'{"instanceTypes":[{"name":"a","offerings":[{"capacityType":"a","zone":"a","price":1e99}]}]}', "a billion"),
        (b'{"a":' * 100_000, "nested too deep"),
        (b'{"instanceTypes": 5}', "instanceTypes"),
    ],
    ids=lambda part: str(part[:40]),
)
def test_bad_catalogues_get_one_sentence(raw: bytes, says: str) -> None:
    """A catalogue that can't be trusted is refused in one sentence that says why."""
    with pytest.raises(CatalogueError, match=says) as caught:
        decode_catalogue(raw, source="file.json")
    assert "\n" not in str(caught.value)


def test_unknown_region_names_the_known_ones() -> None:
    """Asking for a region that is not built in names the command that lists those that are."""
    with pytest.raises(CatalogueError, match="catalog show aws"):
        load_catalogue("aws:mars-1")
