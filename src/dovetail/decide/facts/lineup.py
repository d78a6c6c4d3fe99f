"""Nodes by name, as a tuple that knows how it differs from the one before it.

Views of all nodes thus follow what changed without comparing thousands of nodes. To everything else it is a plain
tuple. Sits in decide, above node_facts, below the roster.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from dovetail.decide.facts.node_facts import NodeFacts

_FEW: Final = 16
_SHARE: Final = 8
"""Up to one node of so many is exchanged in place; with more, sorting all of them is faster."""
_name: Final = attrgetter("name")


class Lineup(tuple[NodeFacts, ...]):  # noqa: SLOT001 - a tuple can have no slots of its own
    """`gone` and `new`: the nodes that the lineup with the mark `since` has and this has not, and the other way round.

    `namesakes`: two nodes (a node and a claim) have the same name. Facts are compared by identity.
    """

    mark: object
    since: object
    gone: Sequence[NodeFacts]
    new: Sequence[NodeFacts]
    namesakes: bool
    _by_name: dict[str, NodeFacts] | None

    @classmethod
    def of(cls, nodes: Iterable[NodeFacts]) -> "Lineup":
        """Make a lineup of nodes that are sorted by name; it follows no other."""
        found = cls._made(nodes, None, (), ())
        names = list(map(_name, found))
        found.namesakes = len(set(names)) != len(names)
        return found

    @classmethod
    def _made(
        cls, nodes: Iterable[NodeFacts], since: object, gone: Sequence[NodeFacts], new: Sequence[NodeFacts]
    ) -> "Lineup":
        found = cls(nodes)
        found.mark, found.since, found.gone, found.new = object(), since, gone, new
        found.namesakes, found._by_name = False, None
        return found

    @property
    def by_name(self) -> Mapping[str, NodeFacts]:
        """Return the nodes by name; of namesakes, the last one."""
        if self._by_name is None:
            self._by_name = {facts.name: facts for facts in self}
        return self._by_name

    def edited(self, gone: Sequence[NodeFacts], new: Sequence[NodeFacts]) -> "Lineup | None":
        """Return the lineup without some of its nodes and with others; None if it has to be sorted anew."""
        if not gone and not new:
            return self
        if self.namesakes or len(gone) + len(new) > _FEW + len(self) // _SHARE:
            return None
        found, coming = list(self), {facts.name: facts for facts in new}
        if len(coming) < len(new):
            return None
        for facts in gone:
            place = bisect_left(found, facts.name, key=_name)
            if facts.name in coming:
                found[place] = coming.pop(facts.name)
            else:
                del found[place]
        for facts in coming.values():
            place = bisect_left(found, facts.name, key=_name)
            if place < len(found) and found[place].name == facts.name:
                return None
            found.insert(place, facts)
        after = self._made(found, self.mark, gone, new)
        names, self._by_name = self._by_name, None  # taken over: hardly anybody asks this lineup again
        if names is not None:
            for facts in gone:
                del names[facts.name]
            names.update((facts.name, facts) for facts in new)
            after._by_name = names
        return after


def step(before: Sequence[NodeFacts], after: Sequence[NodeFacts]) -> tuple[Sequence[NodeFacts], Sequence[NodeFacts]]:
    """Return the facts that are not valid any more, and the new ones."""
    if before is after:
        return (), ()
    if isinstance(before, Lineup) and isinstance(after, Lineup) and after.since is before.mark:
        return after.gone, after.new
    old_ids, new_ids = set(map(id, before)), set(map(id, after))
    return [one for one in before if id(one) not in new_ids], [one for one in after if id(one) not in old_ids]
