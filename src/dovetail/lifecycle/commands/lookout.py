"""Which commands have to be looked at: those whose objects or answers are new, or whose time has come.

A large cluster has hundreds of commands under way, and an event concerns one or two of them. What moves a command on is
read off its own objects, its pools, the answers to its instructions and the time (`signals`, `steps`), so as long as
none of that is new, a look would find nothing. Pods count only in two phases, in which a command is always looked at.
Decides nothing about commands. Sits in lifecycle, above `command_run`, below the command runner.
"""

from typing import Final

from dovetail.lifecycle.commands.command_run import LINGER, Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.store import Store
from dovetail.model.objects import NodeClaim

ALWAYS: Final = (Phase.FOUND, Phase.SURGING, Phase.EVICTING)
"""Phases in which more than its own objects decides how a command goes on."""


class Lookout:
    """What is new for which command. Whoever takes an event in says so here; the command runner asks."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, ...]] = {}
        self._due: dict[str, int] = {}
        self._lingers: dict[str, int] = {}
        self._always: dict[str, None] = {}
        self._by_name: dict[str, dict[str, None]] = {}
        self._new: dict[str, None] = {}
        self._all_are_new = True

    def object_changed(self, name: str) -> None:
        """Note that a Node or a NodeClaim of that name is new, different or gone."""
        self._new |= self._by_name.get(name, {})

    def is_new_for(self, ident: str) -> None:
        """Note that something is new for a command: an instruction was answered, or asked for."""
        self._new[ident] = None

    def all_changed(self) -> None:
        """Note that something is new that any command may mind: a pool, the settings, who leads."""
        self._all_are_new = True

    def next_at(self, elapsed: int) -> int | None:
        """Return when the first command wants to be looked at again, should no event come."""
        return min((at for at in self._due.values() if at > elapsed), default=None)

    def chosen(self, runs: dict[str, Run], elapsed: int, *, something_happened: bool) -> list[Run]:
        """Return the commands to look at now, oldest first; what was new for them is new no longer."""
        if something_happened and self._all_are_new:
            self._new, self._all_are_new = {}, False
            return list(runs.values())
        found = dict.fromkeys(runs.keys() - self._names.keys())
        found |= {ident: None for ident, at in self._due.items() if at <= elapsed}
        if something_happened:
            found |= self._new | self._always
            found |= {ident: None for ident, at in self._lingers.items() if at <= elapsed}
            self._new = {}
        else:
            found |= {ident: None for ident in self._always if runs[ident].phase is Phase.FOUND}
        return [run for run in runs.values() if run.id in found] if found else []

    def looked_at(self, run: Run, store: Store) -> None:
        """Note what a command will be looked at for next."""
        self.forget(run.id)
        names = dict.fromkeys(run.replacements)
        for entry in run.candidates:
            names |= {entry.node: None, entry.claim: None}
        for name in run.replacements:
            claim = store.get(NodeClaim, name)
            if claim is not None and claim.status.node_name:
                names[claim.status.node_name] = None
        self._names[run.id] = tuple(names)
        due = run.next_at()
        if due is not None:
            self._due[run.id] = due
        # A Node that has outlived its NodeClaim counts for a while; its end alone moves nothing on.
        lingers = [at + LINGER for at in run.claim_gone_at.values() if at + LINGER > run.looked_at]
        if lingers:
            self._lingers[run.id] = min(lingers)
        if run.phase in ALWAYS:
            self._always[run.id] = None
        for name in names:
            self._by_name.setdefault(name, {})[run.id] = None

    def forget(self, ident: str) -> None:
        """Forget a command that is over."""
        for kept in (self._due, self._lingers, self._always):
            kept.pop(ident, None)
        for name in self._names.pop(ident, ()):
            runs = self._by_name[name]
            runs.pop(ident, None)
            if not runs:
                del self._by_name[name]
