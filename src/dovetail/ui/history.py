"""What was seen since the start: samples of the cluster, commands and nodes that came and went, money saved.

Kept in SQLite: in memory, or in the file that you name, where it survives a restart and can be read with any tool. Only
this module writes it. A command saves the price of the removed nodes less that of their replacements; under
commitments, the difference of the bills (`ui.command_bills`).
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from dovetail.api.findings import InputError
from dovetail.report.words import action_words, listing
from dovetail.ui.command_bills import Worth
from dovetail.ui.commands import CommandNow

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS samples (at REAL PRIMARY KEY, nodes INTEGER NOT NULL, cost REAL NOT NULL,
  pods INTEGER NOT NULL, pending INTEGER NOT NULL, under_way INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS commands (id TEXT PRIMARY KEY, action TEXT NOT NULL, began REAL NOT NULL, ended REAL,
  nodes TEXT NOT NULL, replacements TEXT NOT NULL, went REAL NOT NULL DEFAULT 0, came REAL NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS events_at ON events (at);
"""
_VERSION: Final = "1"
SAMPLES_MAX: Final = 2_000
EVENTS_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The cluster at one moment, in figures; `at` in seconds since 1970."""

    at: float
    nodes: int
    cost: float
    pods: int
    pending: int
    under_way: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something that was seen: `kind` is `began`, `ended`, `came` or `went`."""

    at: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Money: what ended commands save per hour, and what that has come to so far."""

    per_hour: float
    so_far: float
    commands: int


class Past(Protocol):
    """What the view shows of the time before: seen by itself (`History`), or known (`ui.recorded`)."""

    def take(
        self,
        sample: Sample,
        commands: tuple[CommandNow, ...],
        prices: Mapping[str, float],
        passed: tuple[CommandNow, ...] = (),
        worth: Mapping[str, Worth] = MappingProxyType({}),
    ) -> None:
        """Record a moment."""

    def samples(self) -> list[Sample]:
        """Return the samples, oldest first."""

    def events(self) -> list[Happened]:
        """Return what happened last, newest first."""

    def saved(self, now: float) -> Saved | None:
        """Return what commands saved; None if nothing says so."""

    def close(self) -> None:
        """Release what it holds."""


class History:
    """Records moments one after the other. Not thread-safe."""

    def __init__(self, path: str | None = None) -> None:
        self._base = _opened(path)
        if path is not None:
            Path(path).chmod(0o600)
        self._known: dict[str, float] | None = None
        self._last: float | None = None

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def take(
        self,
        sample: Sample,
        commands: tuple[CommandNow, ...],
        prices: Mapping[str, float],
        passed: tuple[CommandNow, ...] = (),
        worth: Mapping[str, Worth] = MappingProxyType({}),
    ) -> None:
        """Record a moment: its figures, the commands in progress, and the price of each node.

        `passed`: commands that began, and ended, since the moment before. `worth`: what commands take off the bill, by
        id, where that is not a sum of prices.
        """
        if self._last is not None and sample.at <= self._last:
            return  # a capture, or a simulation that stands still
        self._last = sample.at
        self._base.execute("BEGIN")
        try:
            row = (sample.at, sample.nodes, sample.cost, sample.pods, sample.pending, sample.under_way)
            self._base.execute("INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?, ?)", row)
            if passed:
                self._commands(sample.at, (*commands, *passed), prices, worth)
            self._commands(sample.at, commands, prices, worth)
            self._nodes(sample.at, prices)
            self._base.execute("COMMIT")
        except BaseException:
            self._base.execute("ROLLBACK")
            raise

    def _commands(
        self, at: float, commands: tuple[CommandNow, ...], prices: Mapping[str, float], worth: Mapping[str, Worth]
    ) -> None:
        under_way = {entry.id for entry in commands}
        for entry in commands:
            known = self._base.execute("SELECT 1 FROM commands WHERE id = ?", (entry.id,)).fetchone()
            bill = worth.get(entry.id)
            went = bill.went if bill else sum(self._price(node, prices) for node in entry.nodes)
            came = bill.came if bill else sum(prices.get(node, 0.0) for node in entry.coming)
            if known is None:
                nodes, coming = "\n".join(entry.nodes), "\n".join(entry.replacements)
                began = min(at, entry.since.timestamp())
                row = (entry.id, entry.action, began, nodes, coming, went, came)
                self._base.execute(
                    "INSERT INTO commands (id, action, began, nodes, replacements, went, came)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    row,
                )
                self._note(began, "began", event_text(entry.action, entry.nodes, "began"))
            else:
                self._base.execute(
                    "UPDATE commands SET went = MAX(went, ?), came = MAX(came, ?), ended = NULL WHERE id = ?",
                    (went, came, entry.id),
                )
        for ident, action, nodes in self._base.execute(
            "SELECT id, action, nodes FROM commands WHERE ended IS NULL"
        ).fetchall():
            if ident in under_way:
                continue
            stayed = [node for node in nodes.split("\n") if node in prices]
            if stayed:  # rolled back: nothing was saved
                self._base.execute("UPDATE commands SET ended = ?, went = 0, came = 0 WHERE id = ?", (at, ident))
                self._note(at, "ended", event_text(action, nodes.split("\n"), "was undone"))
            else:
                self._base.execute("UPDATE commands SET ended = ? WHERE id = ?", (at, ident))
                self._note(at, "ended", event_text(action, nodes.split("\n"), "is done"))

    def _price(self, node: str, prices: Mapping[str, float]) -> float:
        found = prices.get(node)
        return found if found is not None else (self._known or {}).get(node, 0.0)

    def _nodes(self, at: float, prices: Mapping[str, float]) -> None:
        before = self._known
        self._known = dict(prices)
        if before is None:
            return
        for node in sorted(prices.keys() - before.keys()):
            self._note(at, "came", f"{node} came")
        for node in sorted(before.keys() - prices.keys()):
            self._note(at, "went", f"{node} is gone")

    def _note(self, at: float, kind: str, text: str) -> None:
        self._base.execute("INSERT INTO events (at, kind, text) VALUES (?, ?, ?)", (at, kind, text))

    # ------------------------------------------------------------ reading

    def samples(self) -> list[Sample]:
        """Return the samples, oldest first; thinned out if there are very many."""
        (total,) = self._base.execute("SELECT COUNT(*) FROM samples").fetchone()
        step = max(1, -(-total // SAMPLES_MAX))
        rows = self._base.execute(
            "SELECT at, nodes, cost, pods, pending, under_way FROM"
            " (SELECT *, ROW_NUMBER() OVER (ORDER BY at DESC) AS place FROM samples) WHERE place % ? = 1 OR ? = 1"
            " ORDER BY at",
            (step, step),
        )
        return [Sample(at=a, nodes=b, cost=c, pods=d, pending=e, under_way=f) for a, b, c, d, e, f in rows]

    def events(self) -> list[Happened]:
        """Return what happened last, newest first."""
        rows = self._base.execute("SELECT at, kind, text FROM events ORDER BY at DESC, id DESC LIMIT ?", (EVENTS_MAX,))
        return [Happened(at=at, kind=kind, text=text) for at, kind, text in rows]

    def saved(self, now: float) -> Saved:
        """Return what commands that have ended save; drift and expiry save nothing by themselves."""
        rows = self._base.execute(
            "SELECT went - came, ended FROM commands"
            " WHERE ended IS NOT NULL AND (action LIKE '%Cost' OR action LIKE '%Empty')"
        ).fetchall()
        per_hour = sum(rate for rate, _ in rows)
        so_far = sum(rate * max(0.0, now - ended) / 3600 for rate, ended in rows)
        return Saved(per_hour=per_hour, so_far=so_far, commands=len(rows))

    def since(self) -> float | None:
        """Return when the first sample was taken."""
        row = self._base.execute("SELECT MIN(at) FROM samples").fetchone()
        return None if row[0] is None else float(row[0])


def _opened(path: str | None) -> sqlite3.Connection:
    """Return the database in that file, or a new one in memory. InputError: it can't be used."""
    base: sqlite3.Connection | None = None
    try:
        base = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("PRAGMA synchronous=NORMAL")
        base.executescript(_SCHEMA)
        base.execute("INSERT OR IGNORE INTO meta VALUES ('version', ?)", (_VERSION,))
        (version,) = base.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
    except sqlite3.Error as error:
        if base is not None:
            base.close()
        raise InputError(f"--history {path}: it can't be used ({error}); name a new file") from None
    if version != _VERSION:
        base.close()
        raise InputError(f"--history {path}: it was written by another version of Dovetail; name a new file")
    return base


def event_text(action: str, nodes: Sequence[str], what: str) -> str:
    """Return what happened to a command: `delete for cost of a, b, c and 4 more began`."""
    return f"{action_words(action)} of {listing(nodes)} {what}"


def seconds_of(moment: datetime) -> float:
    """Return a moment as seconds since 1970."""
    return moment.astimezone(UTC).timestamp()
