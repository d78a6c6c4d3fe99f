from dataclasses import replace

import pytest

from dovetail.api.commitments import read_commitments, read_discount, read_surcharge
from dovetail.lifecycle.journal import (
    JournalError,
    decode_header,
    decode_line,
    encode_header,
    encode_line,
    read,
    replay,
)
from dovetail.lifecycle.messages import (
    CatalogueChanged,
    Failure,
    InstructionFailed,
    LeadershipLost,
    ObjectVanished,
    SettingsChanged,
)
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.objects import SelectorRequirement
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from tests.support.lifecycle_world import CALM, T0, Driver, ScriptedPlanner, World, engine_for

DEAR = Catalogue(
    instance_types=(
        InstanceType(
            name="u-24tb1.112xlarge",
            requirements=(SelectorRequirement(key="k", values=("v",)),),
            capacity={"cpu": 448_000, "memory": 24 << 40},
            overhead={},
            offerings=(Offering(capacity_type="on-demand", zone="z", price=218_400 * 10**15, price_float=218.4),),
        ),
    )
)


def journal() -> list[bytes]:
    """Return the journal of a run in which one command succeeds, another fails, and leadership changes."""
    world = World()
    world.add_pool()
    for name, wish in (("a", "replace"), ("b", "delete"), ("c", "replace2")):
        world.add_node(name, want=wish)
    driver = Driver(world, engine_for(CALM, ScriptedPlanner()))
    head = encode_header(driver.engine)
    driver.begin().run(60)
    world.launches = False
    driver.send(LeadershipLost())
    driver.run(10)
    driver.send(CatalogueChanged(catalogue=DEAR))
    driver.begin().run(900)
    assert "done" in driver.ends()
    return [head, *(encode_line(at, event, out) for at, event, out in driver.journal)]


def test_replay_gives_the_same_bytes() -> None:
    """A new engine that replays the events of a journal produces the same output."""
    lines = journal()
    assert len(lines) > 50
    assert list(replay(lines, ScriptedPlanner)) == []


def test_prices_that_are_really_paid_come_back() -> None:
    """Discounts, surcharges and commitments are fractions: they survive the header and a change of settings."""
    paid = replace(
        CALM,
        discount=read_discount({"aws": "33.3%"}, "discount"),
        surcharge=read_surcharge([{"nodeClassKind": "NodeClass", "percent": 12}], "surcharge"),
        commitments=read_commitments(
            [{"name": "plan", "kind": "SavingsPlan", "hourly": "0.5", "rates": "28%"}], "commitments"
        ),
    )
    head = encode_header(engine_for(paid, ScriptedPlanner()))
    assert decode_header(head).settings == paid
    line = encode_line(T0, SettingsChanged(settings=paid), ())
    assert decode_line(line, 2).event == SettingsChanged(settings=paid)
    assert list(replay([head, line], ScriptedPlanner)) == []
    with pytest.raises(JournalError, match="1/0"):
        decode_header(head.replace(b"333/1000", b"1/0"))


def test_replay_notices_a_difference() -> None:
    """Replay names the line of a changed instruction or event."""
    lines = journal()
    number = next(index for index, line in enumerate(lines) if b'"TaintNode"' in line)
    lines[number] = lines[number].replace(b"disrupt", b"corrupt").replace(b"/taint/a", b"/taint/z")
    [difference] = replay(lines, ScriptedPlanner)
    assert difference.number == number + 1
    assert difference.journaled != difference.replayed


def test_lines_survive_being_read() -> None:
    """Every line of a run is the same after writing and reading."""
    lines = journal()
    again = [encode_line(entry.at, entry.event, entry.instructions) for entry in read(lines)]
    assert again == lines[1:]


@pytest.mark.parametrize(
    "event",
    [
        CatalogueChanged(catalogue=DEAR),
        SettingsChanged(settings=KARPENTER_1_15),
        SettingsChanged(settings=DOVETAIL),
        InstructionFailed(id="x", failure=Failure.THROTTLED, detail="later"),
        ObjectVanished(kind="Pod", namespace="shop", name="p", uid="u"),
    ],
)
def test_every_shape_of_event_survives(event: CatalogueChanged | SettingsChanged) -> None:
    """Catalogues with large prices, settings with enums, and failures are equal after reading."""
    assert decode_line(encode_line(T0, event, ()), 2).event == event


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([b"{}\n"], "line 1 is no journal header"),
        ([b'{"journal":7}\n'], "line 1"),
        ([encode_header(engine_for()), b"nonsense\n"], "line 2 can't be read"),
        ([encode_header(engine_for()), b'{"at":"2026-03-02T09:00:00Z","event":["Nothing",{}],"out":[]}\n'], "line 2"),
        ([encode_header(engine_for()).replace(b'"journal":1', b'"journal":7')], "version 7"),
    ],
)
def test_unreadable_journals_are_refused_with_a_sentence(lines: list[bytes], words: str) -> None:
    """The refusal of an unreadable journal names the line and the reason."""
    with pytest.raises(JournalError, match=words):
        list(replay(lines, ScriptedPlanner))
