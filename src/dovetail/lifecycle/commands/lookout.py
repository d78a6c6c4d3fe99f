"""Which commands have to be looked at: those whose objects or answers are new, or whose time has come.

A large cluster has hundreds of commands under way, and an event concerns one or two of them. What moves a command on is
read off its own objects, its pools, the answers to its instructions and the time (`signals`, `steps`), so as long as
none of that is new, a look would find nothing. Pods count only in two phases, in which a command is always looked at;
the pod that it waits for to evict the next one makes it look at once.
Decides nothing about commands. Sits in lifecycle, above `command_run`, below the command runner.
"""

from heapq import heappop, heappush
from itertools import count
from typing import Final

from dovetail.lifecycle.commands.command_run import LINGER, Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.store import Store
from dovetail.model.objects import NodeClaim, Pod

ALWAYS: Final = (Phase.FOUND, Phase.SURGING, Phase.EVICTING)
"""Phases in which more than its own objects decides how a command goes on."""


class Lookout:
    """What is new for which command. Whoever takes an event in says so here; the command runner asks."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, ...]] = {}
        self._numbers: dict[str, int] = {}
        self._count = count()
        self._due: dict[str, int] = {}
        self._alarms: list[tuple[int, str]] = []
        self._overdue: dict[str, None] = {}
        self._lingers: dict[str, int] = {}
        self._always: dict[str, None] = {}
        self._by_name: dict[str, dict[str, None]] = {}
        self._owners: dict[str, dict[str, None]] = {}
        self._owners_of: dict[str, tuple[str, ...]] = {}
        self._new: dict[str, None] = {}
        self._all_are_new = True

    def object_changed(self, name: str) -> None:
        """Note that a Node or a NodeClaim of that name is new, different or gone."""
        self._new |= self._by_name.get(name, {})

    def pod_changed(self, pod: Pod) -> bool:
        """Note that a pod is new or different; return whether a command waits for a pod of its owners to get a node."""
        if not self._owners or not pod.spec.node_name:
            return False
        found = [ident for owner in pod.metadata.owner_references for ident in self._owners.get(owner.uid, ())]
        self._new |= dict.fromkeys(found)
        return bool(found)

    def is_new_for(self, ident: str) -> None:
        """Note that something is new for a command: an instruction was answered, or asked for."""
        self._new[ident] = None

    def all_changed(self) -> None:
        """Note that something is new that any command may mind: a pool, the settings, who leads."""
        self._all_are_new = True

    def next_at(self, elapsed: int) -> int | None:
        """Return when the first command wants to be looked at again, should no event come."""
        self._ring(elapsed)
        return self._alarms[0][0] if self._alarms else None

    def _ring(self, elapsed: int) -> None:
        """Note whose time has come, and drop outdated alarms."""
        alarms = self._alarms
        while alarms and (alarms[0][0] <= elapsed or self._due.get(alarms[0][1]) != alarms[0][0]):
            at, ident = heappop(alarms)
            if self._due.get(ident) == at:
                self._overdue[ident] = None

    def chosen(self, runs: dict[str, Run], elapsed: int, *, something_happened: bool) -> list[Run]:
        """Return the commands to look at now, oldest first; what was new for them is new no longer."""
        if something_happened and self._all_are_new:
            self._new, self._all_are_new = {}, False
            return list(runs.values())
        self._ring(elapsed)
        found = dict(self._overdue)
        if something_happened:
            found |= self._new | self._always
            found |= {ident: None for ident, at in self._lingers.items() if at <= elapsed}
            self._new = {}
        else:
            found |= {ident: None for ident in self._always if runs[ident].phase is Phase.FOUND}
        known = sorted([ident for ident in found if ident in self._numbers], key=self._numbers.__getitem__)
        chosen = [runs[ident] for ident in known]
        if len(runs) > len(self._numbers):  # the youngest were not looked at yet
            chosen += [run for ident, run in runs.items() if ident not in self._numbers]
        return chosen

    def looked_at(self, run: Run, store: Store) -> None:
        """Note what a command will be looked at for next."""
        self._numbers.setdefault(run.id, next(self._count))
        self._forget_objects(run.id)
        names = dict.fromkeys(run.replacements)
        for entry in run.candidates:
            names |= {entry.node: None, entry.claim: None}
        for name in run.replacements:
            claim = store.get(NodeClaim, name)
            if claim is not None and claim.status.node_name:
                names[claim.status.node_name] = None
        self._names[run.id] = tuple(names)
        self._set_alarm(run.id, run.next_at())
        # A Node that has outlived its NodeClaim counts for a while; its end alone moves nothing on.
        lingers = [at + LINGER for at in run.claim_gone_at.values() if at + LINGER > run.looked_at]
        if lingers:
            self._lingers[run.id] = min(lingers)
        if run.phase in ALWAYS:
            self._always[run.id] = None
        if run.phase is Phase.EVICTING and run.in_the_air:
            owners = tuple(dict.fromkeys(uid for pod in run.in_the_air for uid in pod.owners))
            self._owners_of[run.id] = owners
            for uid in owners:
                self._owners.setdefault(uid, {})[run.id] = None
        for name in names:
            self._by_name.setdefault(name, {})[run.id] = None

    def _set_alarm(self, ident: str, due: int | None) -> None:
        if due == self._due.get(ident):
            return
        self._overdue.pop(ident, None)
        if due is None:
            del self._due[ident]
        else:
            self._due[ident] = due
            heappush(self._alarms, (due, ident))

    def forget(self, ident: str) -> None:
        """Forget a command that is over."""
        self._forget_objects(ident)
        self._set_alarm(ident, None)
        self._numbers.pop(ident, None)

    def _forget_objects(self, ident: str) -> None:
        for kept in (self._lingers, self._always):
            kept.pop(ident, None)
        for listed, keys in ((self._by_name, self._names), (self._owners, self._owners_of)):
            for key in keys.pop(ident, ()):
                runs = listed[key]
                runs.pop(ident, None)
                if not runs:
                    del listed[key]
