"""Everything that went into an engine and came out, as lines of JSON; and a replay from those lines.

The first line says how the engine was created; every other one holds a time, an event and the resulting instructions.
`replay` feeds the events to a new engine and compares bytes: a journaled run can be repeated anywhere, under any hash
seed. Reads and writes no file; a shell does. Sits beside `engine`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, get_args

import msgspec

from dovetail.lifecycle.decisions import RoundDecider
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.engine_state import EngineRole
from dovetail.lifecycle.json_forms import decode_value, encode_value
from dovetail.lifecycle.messages import Event, Instruction
from dovetail.model.catalogue import Catalogue
from dovetail.model.settings import Settings

VERSION: Final = 1


class JournalError(ValueError):
    """A journal that can't be read; the message says where and why."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine was created."""

    journal: int = VERSION
    identity: str
    observe: bool
    holds: bool
    holds_first: bool = False
    controller: str
    settings: Settings
    catalogue: Catalogue


class _Line(msgspec.Struct, frozen=True):
    at: datetime
    event: tuple[str, msgspec.Raw]
    out: tuple[tuple[str, msgspec.Raw], ...]


_LINE: Final = msgspec.json.Decoder(_Line)
_HEADER: Final = msgspec.json.Decoder(Header, dec_hook=decode_value)
_EVENTS: Final = {kind.__name__: msgspec.json.Decoder(kind, dec_hook=decode_value) for kind in get_args(Event)}
_INSTRUCTIONS: Final = {
    kind.__name__: msgspec.json.Decoder(kind, dec_hook=decode_value) for kind in get_args(Instruction)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One line, read."""

    at: datetime
    event: Event
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A line that differs on replay. `number` counts from 1, including the header."""

    number: int
    journaled: bytes
    replayed: bytes


def encode_header(engine: Engine) -> bytes:
    """Write the first line for an engine that has handled nothing yet."""
    header = Header(
        identity=engine.identity,
        observe=engine.observe,
        holds=engine.role.holds,
        holds_first=engine.role.holds_first,
        controller=engine.controller,
        settings=engine.settings,
        catalogue=engine.catalogue,
    )
    return msgspec.json.encode(header, enc_hook=encode_value) + b"\n"


def encode_line(at: datetime, event: Event, instructions: Iterable[Instruction]) -> bytes:
    """Write one event and its instructions."""
    out = [(type(item).__name__, item) for item in instructions]
    line = {"at": at, "event": (type(event).__name__, event), "out": out}
    return msgspec.json.encode(line, enc_hook=encode_value) + b"\n"


def decode_header(line: bytes) -> Header:
    """Read the first line."""
    try:
        header = _HEADER.decode(line)
    except msgspec.DecodeError as error:
        raise JournalError(f"line 1 is no journal header: {error}") from None
    if header.journal != VERSION:
        raise JournalError(f"journal version {header.journal} is not known; this program reads version {VERSION}")
    return header


def decode_line(line: bytes, number: int) -> JournalEntry:
    """Read any other line."""
    try:
        raw = _LINE.decode(line)
        event = _EVENTS[raw.event[0]].decode(raw.event[1])
        out = tuple(_INSTRUCTIONS[name].decode(text) for name, text in raw.out)
    except (msgspec.DecodeError, KeyError) as error:
        raise JournalError(f"line {number} can't be read: {error}") from None
    return JournalEntry(at=raw.at, event=event, instructions=out)


def read(lines: Iterable[bytes]) -> Iterator[JournalEntry]:
    """Read all lines after the header, one by one."""
    for number, line in enumerate(lines, start=1):
        if number > 1 and line.strip():
            yield decode_line(line, number)


def replay(lines: Iterable[bytes], decider: Callable[[], RoundDecider] | None = None) -> Iterator[Difference]:
    """Feed a journal to a new engine; yield the lines that differ."""
    engine: Engine | None = None
    for number, line in enumerate(lines, start=1):
        if engine is None:
            header = decode_header(line)
            engine = Engine(
                header.settings,
                header.catalogue,
                EngineRole(
                    identity=header.identity,
                    observe=header.observe,
                    holds=header.holds,
                    holds_first=header.holds_first,
                    controller=header.controller,
                ),
                decider=None if decider is None else decider(),
            )
            continue
        if not line.strip():
            continue
        entry = decode_line(line, number)
        again = encode_line(entry.at, entry.event, engine.handle(entry.event, entry.at))
        if again.rstrip(b"\n") != line.rstrip(b"\n"):
            yield Difference(number=number, journaled=line, replayed=again)
