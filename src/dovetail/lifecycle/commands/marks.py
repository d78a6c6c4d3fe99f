"""Objects that carry a command's record or the disruption taint, by controller and command.

So the marks of commands in progress, which are nearly all, need no look while others are searched for commands that a
predecessor left. Decides nothing. Sits in lifecycle, above `records`; `store` keeps it up to date.
"""

from collections.abc import Container
from collections.abc import Set as AbstractSet
from typing import Final

from dovetail.lifecycle.commands.records import is_tainted, record_of
from dovetail.model import names
from dovetail.model.objects import Node, NodeClaim

_Mark = tuple[type, str]
"""Kind and name of an object."""
_NOBODY: Final = ""
"""Controller and command of an object without a readable record."""
_CHANGES_MAX: Final = 1000
"""How many commands with changed marks are told apart; from then on, any may have changed."""


class Marks:
    """The marked objects. `version` grows whenever one changes."""

    def __init__(self) -> None:
        self.version = 0
        self.nodes: dict[str, None] = {}
        self.claims: dict[str, None] = {}
        self._by: dict[str, dict[str, dict[_Mark, None]]] = {}
        self._changed: dict[tuple[str, str], None] = {}

    def learn(self, item: Node | NodeClaim) -> None:
        """Add an object if it is marked."""
        if names.COMMAND not in item.metadata.annotations and not (isinstance(item, Node) and is_tainted(item)):
            return
        self._marked(item)[item.metadata.name] = None
        controller, command = _command_of(item)
        self._by.setdefault(controller, {}).setdefault(command, {})[type(item), item.metadata.name] = None
        self._note(controller, command)

    def forget(self, item: Node | NodeClaim) -> None:
        """Remove an object, exactly as it was learned."""
        name, marked = item.metadata.name, self._marked(item)
        if name not in marked:
            return
        del marked[name]
        controller, command = _command_of(item)
        commands = self._by[controller]
        del commands[command][type(item), name]
        if not commands[command]:
            del commands[command]
        if not commands:
            del self._by[controller]
        self._note(controller, command)

    def _note(self, controller: str, command: str) -> None:
        self.version += 1
        if len(self._changed) < _CHANGES_MAX:
            self._changed[controller, command] = None

    def have_changed(self, controller: str, *known: Container[str]) -> bool:
        """Return whether a mark has changed, since the last question, that belongs to no known command.

        Those of other controllers don't count.
        """
        changed, self._changed = self._changed, {}
        if len(changed) >= _CHANGES_MAX:
            return True
        return any(
            by == _NOBODY or (by == controller and not any(command in commands for commands in known))
            for by, command in changed
        )

    def _marked(self, item: Node | NodeClaim) -> dict[str, None]:
        return self.nodes if isinstance(item, Node) else self.claims

    def others(self, controller: str, known: AbstractSet[str]) -> tuple[list[str], list[str]]:
        """Return the Nodes and the NodeClaims, by name, that are not marked for a known command.

        Those of other controllers are left out.
        """
        found = dict(self._by.get(_NOBODY, {}).get(_NOBODY, {}))
        own = self._by.get(controller, {})
        for command in own.keys() - known:
            found |= own[command]
        nodes = sorted(name for kind, name in found if kind is Node)
        return nodes, sorted(name for kind, name in found if kind is NodeClaim)


def _command_of(item: Node | NodeClaim) -> tuple[str, str]:
    record = record_of(item)
    return (_NOBODY, _NOBODY) if record is None else (record.by, record.id)
