"""Which commands have to be looked at: those whose objects or answers are new, or whose time has come.

A large cluster has hundreds of commands under way, and an event concerns one or two of them. What moves a command on is
read off its own objects, its pools, the answers to its instructions and the time (`signals`, `steps`), so as long as
none of that is new, a look would find nothing. Pods count only in two phases, in which a command is always looked at.
Decides nothing about commands. Sits in lifecycle, above `command_run`, below the command runner.
"""

from dataclasses import dataclass
from typing import Final

from dovetail.lifecycle.commands.command_run import LINGER, Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.store import Store
from dovetail.model.objects import NodeClaim

ALWAYS: Final = (Phase.FOUND, Phase.SURGING, Phase.EVICTING)
"""Phases in which more than its own objects decides how a command goes on."""


@dataclass(frozen=True, slots=True)
class _Watched:
    """What a command was looked at for: the names of its objects, when it wants to be looked at again.

    `lingers`: when a Node that has outlived its NodeClaim no longer counts; asked only when something else has happened
    as well. `always`: it is looked at whenever something has happened.
    """

    names: tuple[str, ...]
    due: int | None
    lingers: int | None
    always: bool


class Lookout:
    """What is new for which command. Whoever takes an event in says so here; the command runner asks."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
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

    def next_at(self) -> list[int]:
        """Return when the commands want to be looked at again, should no event come."""
        return [watched.due for watched in self._watched.values() if watched.due is not None]

    def chosen(self, runs: dict[str, Run], elapsed: int, *, something_happened: bool) -> list[Run]:
        """Return the commands to look at now, oldest first; what was new for them is new no longer."""
        if something_happened and self._all_are_new:
            self._new, self._all_are_new = {}, False
            return list(runs.values())
        new = self._new if something_happened else {}
        found = [run for run in runs.values() if run.id in new or self._wants(run, elapsed, something_happened)]
        if something_happened:
            self._new = {}
        return found

    def _wants(self, run: Run, elapsed: int, something_happened: bool) -> bool:
        watched = self._watched.get(run.id)
        if watched is None or (watched.due is not None and watched.due <= elapsed):
            return True
        if watched.lingers is not None and something_happened and watched.lingers <= elapsed:
            return True
        return watched.always and (something_happened or run.phase is Phase.FOUND)

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
        lingers = [at + LINGER for at in run.claim_gone_at.values() if at + LINGER > run.looked_at]
        always = run.phase in ALWAYS
        self._watched[run.id] = _Watched(tuple(names), run.next_at(), min(lingers, default=None), always)
        for name in names:
            self._by_name.setdefault(name, {})[run.id] = None

    def forget(self, ident: str) -> None:
        """Forget a command that is over."""
        watched = self._watched.pop(ident, None)
        for name in () if watched is None else watched.names:
            runs = self._by_name[name]
            runs.pop(ident, None)
            if not runs:
                del self._by_name[name]
