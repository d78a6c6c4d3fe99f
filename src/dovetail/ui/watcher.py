"""Polls a source, decides, records history, and keeps the newest document for display.

One thread. Each look costs a round, so the time between looks grows with what a round takes: a large cluster is looked
at less often, never without a pause.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from dovetail.api.findings import InputError
from dovetail.decide.decider import Decider
from dovetail.decide.question import Question
from dovetail.decide.round import RoundResult, decide
from dovetail.decide.work import Work
from dovetail.plan.blocking.blockers import find_blockers
from dovetail.plan.view import changes_of, moves_of
from dovetail.ui.command_bills import CommandBills
from dovetail.ui.commands import CommandNow, commands_of, drains_of
from dovetail.ui.document import live_document, sample_of
from dovetail.ui.history import Past
from dovetail.ui.lives import Lives, LivesSeen
from dovetail.ui.outcomes import OutcomesSeen
from dovetail.ui.sources import DocumentSource, Status

Json = dict[str, Any]
_EVERY_SECONDS: Final = 1.0
_SHARE: Final = 3.0
"""At most a third of the time is spent on rounds."""


class Watcher:
    """Keeps `document` and `version` up to date until stopped."""

    def __init__(
        self, source: DocumentSource, history: Past, lives: Lives | None = None, every: float = _EVERY_SECONDS
    ) -> None:
        self.source = source
        self.version = 0
        self.document: Json | None = None
        self.problem = ""
        self._history = history
        self._lives = lives or LivesSeen()
        self._outcomes = OutcomesSeen()
        self._bills = CommandBills()
        self._every = every
        self._decider = Decider()
        self._busy = threading.Lock()
        self._seen: tuple[Question, Work, RoundResult] | None = None
        self._shown: tuple[Question, Status] | None = None
        self._passed: tuple[CommandNow, ...] = ()
        self._wake = threading.Event()
        self._stopping = False
        self._listeners: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call back, in the watcher's thread, after every new document."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Begin."""
        self.source.start()
        self._thread.start()

    def stop(self) -> None:
        """End, and close the history."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        self.source.stop()
        self._history.close()

    def set_speed(self, speed: int) -> bool:
        """Change how fast a simulation runs, and look at once."""
        changed = self.source.set_speed(speed)
        self._wake.set()
        return changed

    def go_to(self, seconds: float) -> bool:
        """Go to a moment of a recording, and look at once."""
        with self._busy:
            moved = self.source.go_to(seconds)
            if moved:  # what was kept from round to round is of another time
                self._decider, self._outcomes, self._bills, self._passed = Decider(), OutcomesSeen(), CommandBills(), ()
        self._wake.set()
        return moved

    def _run(self) -> None:
        while not self._stopping:
            began = time.monotonic()
            try:
                self.look()
            except InputError as error:  # for example, no catalogue matches these nodes
                self._trouble(str(error))
            except Exception as error:  # one odd object must not end the view
                self._trouble(f"what is there can't be judged ({type(error).__name__}: {error})")
            took = time.monotonic() - began
            self._wake.wait(max(self._every, took * _SHARE))
            self._wake.clear()

    def look(self) -> bool:
        """Look once; return whether there is something new to show."""
        # Before the question: a command that began after it must not look undone because its nodes are still there.
        self._passed += self.source.passed()
        question, status = self.source.question(), self.source.status()
        if question is None:
            self._trouble(status.problem)
            return False
        if self._shown is not None and _same(self._shown, question, status):
            return False
        with self._busy:
            work = Work(self._decider.scene(question))
            result = decide(work)
            ours = commands_of(question.cluster, question.now)
            commands = (*ours, *drains_of(question.cluster, ours))
            going = {entry.id for entry in commands}
            passed = tuple({entry.id: entry for entry in self._passed if entry.id not in going}.values())
            self._passed = ()
            prices = {name: price / 10**18 for name, price in result.prices.items()}
            prices = {facts.name: prices.get(facts.name, 0.0) for facts in work.scene.nodes}
            paid_ahead = bool(question.settings.commitments)
            worth = self._bills.take(work.scene.billing, (*commands, *passed)) if paid_ahead else {}
            self._history.take(sample_of(question, work.scene, result, len(commands)), commands, prices, passed, worth)
            self._outcomes.take(question.now, commands, prices, question.cluster, passed, worth)
            self._lives.take(question.now, question.cluster, prices, (*passed, *commands))
            document = live_document(question, work, result, commands, self._history, self._lives, status)
            document["outcomes"] = self._outcomes.document()
            self._seen = (question, work, result)
        self._shown = (question, status)
        self.problem = status.problem
        self.document = document
        self._notify()
        return True

    def _trouble(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self._notify()

    def _notify(self) -> None:
        self.version += 1
        for listener in self._listeners:
            listener()

    # ------------------------------------------------------------ asked for one by one

    def node(self, name: str) -> Json | None:
        """Return where a node's pods would go and what would change its verdict; None if it is not there."""
        with self._busy:
            if self._seen is None or name not in self._seen[1].scene.by_name:
                return None
            question, work, result = self._seen
            moves = moves_of(work, name, result.commands)
            return {"moves": moves, "changes": changes_of(question, name)}

    def blockers(self) -> list[Json]:
        """Return what blocks how much money."""
        with self._busy:
            if self._seen is None:
                return []
            return [entry.to_dict() for entry in find_blockers(self._seen[0])]


def _same(shown: tuple[Question, Status], question: Question, status: Status) -> bool:
    """Return whether nothing has changed: the same cluster, at the same time, in the same state."""
    before, state = shown
    return before.cluster is question.cluster and before.now == question.now and state == status
