"""Standing refusals: what was certain about a node in an earlier round, until something changes that could overturn it.

A node is refused without a simulation by bounds on what its pods need, or because one of them would go to a node that
is still starting. This depends on its own pods and price, on launch prices, and on the nodes with room for its pods. So
an answer is kept with its node in two ways:

- Under which kinds of its pods fit on no other node, if these alone suffice for a refusal. It is valid whenever the
  same kinds fit nowhere again, whatever else changes.
- Under a mark for everything that answers about started pods rest on (`Shelter.answers`, `Unready.answers`). A later
  round that finds all of it the same takes over the mark, and with it all answers. Pods that have not started may go to
  closed nodes too, of which the mark says nothing; a node with such pods has no answer under it.

What a node has to save changes with time, so it is not part of an answer. The cache never changes an answer. Sits in
decide, beside bounds; `Decider` owns it.
"""

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.refusals.bounds import Bounds
from dovetail.decide.refusals.launches import Launches
from dovetail.decide.refusals.sieve import NO_ROW, Possible, Sieve, SieveView
from dovetail.decide.refusals.unready import Unready
from dovetail.model.cached import cached
from dovetail.model.money import Money
from dovetail.model.settings import Settings
from dovetail.scheduling.pods.classes import PodClass, SpecInfo
from dovetail.scheduling.pods.movers import Mark, Movers
from dovetail.scheduling.snapshot import Snapshot

_GONE_MAX: Final = 64
_SUBJECTS_MAX: Final = 1000
"""About how many kinds and demands a round may ask the next one; beyond, most are of pods that are gone."""
_ANSWERS_MAX: Final = 16
"""How many refusals are kept for a node, under as many sets of kinds that fit nowhere."""


class _Entry:
    """The answers for a node with these pods and this price; `answer` is valid under the mark `under`."""

    __slots__ = ("answer", "by_homeless", "movers", "price", "price_float", "row", "under")

    def __init__(self, movers: Movers, price: Money, price_float: float) -> None:
        self.movers, self.price, self.price_float = movers, price, price_float
        self.by_homeless: dict[int, Refusal] = {}
        self.answer: Refusal | Possible | None = None
        self.under: object = None
        self.row: int | None = None


class _Basis(msgspec.Struct, frozen=True, eq=False):
    """What the answers of a round rest on; the two dictionaries grow while it is asked."""

    mark: object
    shelter: Mapping[SpecInfo | Mark, Hashable]
    unready: Mapping[tuple[PodClass, bool], Hashable]
    starting: bool
    planned: frozenset[str]


class _Memory:
    """The answers by node, and what those of the last round with many nodes rest on."""

    def __init__(self, sieve: Sieve) -> None:
        self.entries: dict[str, _Entry] = {}
        self.basis: _Basis | None = None
        self.sieve = sieve

    def forget(self, nodes: Container[str]) -> None:
        """Forget nodes that are not among these."""
        for name in [name for name in self.entries if name not in nodes]:
            self.sieve.remove(self.entries.pop(name).row)


class StandingRefusals:
    """The answers of earlier rounds that may be valid again."""

    def __init__(self) -> None:
        self._memory: _Memory | None = None
        self._under: tuple[object, Launches, int, Settings] | None = None

    def look_at(
        self, snapshot: Snapshot, bounds: Bounds, unready: Unready, launches: Launches, settings: Settings
    ) -> "StandingView | None":
        """Return the answers that are valid in a context; None: none can be."""
        if bounds.counts_leaving:
            return None
        # An earlier round that is read late may not know all resources.
        under = (snapshot.lineage, launches, bounds.for_moved.width, replace(settings, ties=0))
        memory = self._memory
        if memory is None or self._under != under:
            memory = self._memory = _Memory(Sieve(bounds.for_moved.width, launches))
            self._under = under
        if len(memory.entries) > 2 * len(snapshot.states) + _GONE_MAX:
            memory.forget(snapshot.index)
        return StandingView(memory, snapshot, bounds, unready)

    @property
    def entries(self) -> Mapping[str, _Entry]:
        """Return the nodes with answers."""
        return {} if self._memory is None else self._memory.entries


class StandingView:
    """The answers that are valid in one context."""

    def __init__(self, memory: _Memory, snapshot: Snapshot, bounds: Bounds, unready: Unready) -> None:
        self._memory, self._entries, self._snapshot = memory, memory.entries, snapshot
        self._shelter, self._unready = bounds.for_moved, unready
        self._bounds = bounds
        self._possible: dict[str, Possible] = {}
        self._basis: _Basis | None = None

    @cached
    def _sieve(self) -> SieveView:
        return SieveView(self._memory.sieve, self._bounds, self._unready)

    def rule_out(self, nodes: Sequence[NodeFacts], refuse: Callable[..., Refusal | None]) -> list[Refusal | None]:
        """Refuse many nodes at once; None: ask about it alone. `refuse`: says what a bound means for a node.

        Nodes that were asked about before with the same pods are looked at; a first question needs no row.
        """
        asked, rows, places = [], [], []
        entries, index, sieve = self._entries, self._snapshot.index, self._memory.sieve
        for number, facts in enumerate(nodes):
            entry, place = entries.get(facts.name), index.get(facts.name, -1)
            if entry is None or entry.row == NO_ROW or not self._is_valid(entry, facts, place):
                continue
            if entry.row is None:
                entry.row = sieve.add(entry.movers)
            if entry.row != NO_ROW:
                asked.append(number)
                rows.append(entry.row)
                places.append(place)
        found: list[Refusal | None] = [None] * len(nodes)
        if asked:
            told = self._sieve.rule_out(rows, places, lambda number, *bound: refuse(nodes[asked[number]], *bound))
            for number, answer in zip(asked, told, strict=True):
                if isinstance(answer, Refusal):
                    found[number] = answer
                elif answer is not None:
                    self._possible[nodes[number].name] = answer
        return found

    def possible(self, facts: NodeFacts) -> Possible | None:
        """Return what `rule_out` found about a node that it could not refuse; None: nothing."""
        return self._possible.get(facts.name)

    def of(self, facts: NodeFacts, place: int) -> Refusal | Possible | None:
        """Return what is certain about a node; None: it has to be computed."""
        possible = self.possible(facts)
        if possible is not None:
            return possible
        entry = self._entries.get(facts.name)
        if entry is None or not self._is_valid(entry, facts, place):
            return None
        if self._basis is not None and entry.under is self._mark():
            return entry.answer
        if entry.by_homeless and (found := self._by_homeless(entry, place)) is not None:
            return found
        if self._basis is None:
            self._compare()
            return entry.answer if entry.under is self._mark() else None
        return None

    def _mark(self) -> object:
        """Return the mark of this context; another object each time once a later context compared itself with it."""
        basis = self._basis
        return basis.mark if basis is not None and self._memory.basis is basis else object()

    def _is_valid(self, entry: _Entry, facts: NodeFacts, place: int) -> bool:
        movers, snapshot = entry.movers, self._snapshot
        return (
            0 <= place < snapshot.initialized
            and movers.of is snapshot.pods_on[place]
            and entry.price == facts.price
            and entry.price_float == facts.price_float
            and movers.span.covers(snapshot.now)
        )

    def _by_homeless(self, entry: _Entry, place: int) -> Refusal | None:
        found = entry.by_homeless.get(self._shelter.homeless(entry.movers))
        if found is None or place in self._shelter.counted:  # it may be the only one with room for some of its pods
            return None
        if self._basis is not None:
            entry.answer, entry.under = found, self._mark()
        return found

    def _compare(self) -> None:
        """Take over the mark of the last round if all that its answers rest on is the same."""
        before, shelter, unready = self._memory.basis, self._shelter, self._unready
        planned = unready.planned if unready.any else frozenset[str]()
        same = (
            before is not None
            and len(before.shelter) + len(before.unready) <= _SUBJECTS_MAX
            and before.starting == unready.any
            and before.planned == planned
            and all(shelter.answer(subject) == answer for subject, answer in before.shelter.items())
            and all(unready.answer(*of) == answer for of, answer in before.unready.items())
        )
        mark = before.mark if before is not None and same else object()
        self._basis = self._memory.basis = _Basis(mark, shelter.answers, unready.answers, unready.any, planned)

    def keep(self, facts: NodeFacts, place: int, found: Refusal | Possible, *, alone: bool) -> None:
        """Remember what is certain about a node; `alone`: it rests only on pods that fit on no other node."""
        if not 0 <= place < self._snapshot.initialized:
            return
        entry = self._entries.get(facts.name)
        if entry is None or not self._is_valid(entry, facts, place):
            if entry is not None:
                self._memory.sieve.remove(entry.row)
            entry = _Entry(self._snapshot.movers(place), facts.price, facts.price_float)
            self._entries[facts.name] = entry
        if self._basis is None:
            self._compare()
        if entry.movers.started is entry.movers.specs:
            entry.answer, entry.under = found, self._mark()
        if alone and isinstance(found, Refusal) and place not in self._shelter.counted:
            if len(entry.by_homeless) >= _ANSWERS_MAX:
                entry.by_homeless.clear()
            entry.by_homeless[self._shelter.homeless(entry.movers)] = found
