"""Executes commands concurrently: starts, validates, advances and ends them, and resumes those of a predecessor.

`commands.machine` defines the order of steps in a command; `decide` chooses the commands. The end of a command has
consequences that outlive it (pools back off, cost actions wait, pods must come back): the state keeps them. See
docs/rules.md#methods and #carrying-out; lifecycle-controller. Sits in lifecycle, above `engine_state`; only `engine`
calls it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dovetail.decide.refusal import Refusal
from dovetail.lifecycle.announce import command_event, command_report, publish
from dovetail.lifecycle.commands import draining, flight, irreversible, resume
from dovetail.lifecycle.commands.attempts import SECOND, Attempts
from dovetail.lifecycle.commands.command_run import Run, View, is_initialized, is_leaving
from dovetail.lifecycle.commands.lookout import Lookout
from dovetail.lifecycle.commands.machine import BEGINNING, Phase, Signal
from dovetail.lifecycle.commands.records import Candidate, Record
from dovetail.lifecycle.commands.signals import advance
from dovetail.lifecycle.commands.steps import instructions
from dovetail.lifecycle.decisions import RoundDecider
from dovetail.lifecycle.engine_state import EngineState
from dovetail.lifecycle.memory.pacing import NOMINATED_AFTER, BackOff, loop_pause
from dovetail.lifecycle.messages import Failure
from dovetail.lifecycle.reports import CommandDropped, CommandFound, CommandProposed, NodesBackOff, PoolBacksOff
from dovetail.model.command import COST_METHODS, Action, Command, Method
from dovetail.model.money import as_float
from dovetail.model.objects import Node, NodeClaim, NodePool
from dovetail.model.settings import StabilizationEnds

ENDED_MEMORY: Final = 30 * SECOND
"""How long the marks of a command that has ended may still be seen before they count as left over."""
_OF_NODES_THAT_MUST_GO: Final = (Method.UNHEALTHY, Method.DRIFTED)
_BLAMES_POOL: Final = (Signal.TIMED_OUT, Signal.REPLACEMENT_VANISHED, Signal.INSTRUCTION_REFUSED)


def _proposal(command: Command) -> CommandProposed:
    return CommandProposed(
        action=command.action,
        nodes=command.nodes,
        replacements=len(command.replacements),
        savings=as_float(command.savings),
        pods=command.pods,
    )


class CommandRunner:
    """Runs the commands of one engine; `sweeps` are the attempts to remove marks that belong to no command."""

    def __init__(self, state: EngineState, decider: RoundDecider) -> None:
        self._state = state
        self._decider = decider
        self._started = 0
        self._proposed: CommandProposed | CommandDropped | None = None
        self.sweeps = Attempts()
        self.forget()

    def forget(self) -> None:
        """Forget everything that belongs to acting: another process may have changed it."""
        self.sweeps = Attempts()
        self._strange_marks = True
        self._refused_last: tuple[str, ...] = ()
        self._gives_way: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._advanced_at: tuple[int, int, int] | None = None
        self.lookout = Lookout()
        self._better: list[tuple[int, Run]] = []
        self._rests = False

    # ------------------------------------------------------------ beginning

    def start(self, command: Command) -> bool:
        """Start a command: it waits for its validation, and its nodes count as leaving from now on."""
        state = self._state
        if self._must_give_way(command):
            return False
        candidates = self._bind_to_claims(command)
        if state.observe or candidates is None:
            proposed = (
                _proposal(command) if state.observe else CommandDropped(action=command.action, nodes=command.nodes)
            )
            if self._proposed != proposed:
                self._proposed = proposed
                state.out.append(proposed)
            return False
        self._started += 1
        run = flight.propose(
            command,
            candidates,
            identity=state.identity,
            number=self._started,
            now=state.now,
            elapsed=state.elapsed,
        )
        run.by = state.controller
        run.validate_at = state.elapsed + (state.settings.validation_delay if self._needs_validation(command) else 0)
        state.runs[run.id] = run
        self._rests = False
        state.out.append(command_report(run, None, None, Phase.VALIDATING, state.elapsed))
        return True

    def _needs_validation(self, command: Command) -> bool:
        """Return whether a command is asked about again before it begins."""
        return self._state.settings.rules.validates_drift or command.method not in _OF_NODES_THAT_MUST_GO

    def _must_give_way(self, command: Command) -> bool:
        """Return whether a refused command must wait for the commands that were in validation at that time.

        If two commands were each decided with the other in flight, both become invalid when the other is refused.
        Restarted at once, they would refuse each other for ever.
        """
        runs = (self._state.runs.get(ident) for ident in self._gives_way.get(command.nodes, ()))
        return any(run is not None and run.phase is Phase.VALIDATING for run in runs)

    def _bind_to_claims(self, command: Command, ident: str = "") -> tuple[Candidate, ...] | None:
        state = self._state
        taken = {node: None for run in state.runs.values() if run.id != ident for node in run.nodes}
        return flight.bind_to_claims(command, state.store, taken.__contains__, state.manages)

    def take_over(self) -> None:
        """Resume the commands of a predecessor, and remove marks that belong to no command."""
        state = self._state
        due = self.next_at()
        if state.marks_seen == state.store.marks.version and (due is None or due > state.elapsed):
            return
        has_news = state.store.marks.have_changed(state.controller, state.runs, state.pacing.ended)
        all_known = due is None and not self._strange_marks and state.marks_seen is not None
        state.marks_seen = state.store.marks.version
        if all_known and not has_news:
            return
        known = state.runs.keys() | state.pacing.ended.keys()
        left = resume.find(state.store, state.controller, known, state.manages)
        self._strange_marks = left.any_marks
        self._resume(left.records)
        wanted = {sweep.id for sweep in left.sweeps}
        for ident in self.sweeps.ids():
            if ident not in wanted:
                self.sweeps.forget(ident)
        for sweep in left.sweeps:
            if self.sweeps.due(sweep.id, state.elapsed):
                self.sweeps.ask(sweep.id, state.elapsed)
                state.out.append(sweep)

    def _resume(self, records: Sequence[Record]) -> None:
        state = self._state
        taken = {node: None for run in state.runs.values() for node in run.nodes} if records else {}
        for record in records:
            run = resume.take_over(
                record,
                taken=taken.__contains__,
                now=state.now,
                elapsed=state.elapsed,
                timeout=state.settings.replacement_timeout,
            )
            taken |= dict.fromkeys(run.nodes)
            state.runs[run.id] = run
            for name in run.replacements:
                state.pacing.lingering.pop(name, None)
            state.out.append(CommandFound(command_id=run.id, action=run.action))

    def next_at(self) -> int | None:
        """Return when marks that belong to no command are looked for again.

        Those that were removed count too while they are seen: somebody may have put them on again.
        """
        return self.sweeps.next_at(done=True)

    # ------------------------------------------------------------ going on

    def advance(self, *, changed: bool) -> None:
        """Advance commands as far as possible; `changed`: even if no Node, NodeClaim or NodePool has changed."""
        state, store = self._state, self._state.store
        key = (store.version_of(Node), store.version_of(NodeClaim), store.version_of(NodePool))
        changed = changed or key != self._advanced_at
        if self._advanced_at is None or key[2] != self._advanced_at[2]:
            self.lookout.all_changed()
        self._advanced_at = key
        self._rests, view = changed, None
        for run in self.lookout.chosen(state.runs, state.elapsed, something_happened=changed):
            view = view or state.view()
            asked = run.attempts.version
            self._advance_one(run, view)
            if run.is_over:
                self.lookout.forget(run.id)
                continue
            self.lookout.looked_at(run, store)
            if run.attempts.version != asked:
                self.lookout.is_new_for(run.id)

    def advance_again(self) -> None:
        """Advance every command again, unless none moved just now and none has started since."""
        if not self._rests:
            self.advance(changed=True)

    def _advance_one(self, run: Run, view: View) -> None:
        state = self._state
        if run.phase is Phase.VALIDATING and run.verdict is None and run.validate_at <= state.elapsed:
            self._validate(run)
            if state.settings.rules.waits_for_validation:
                state.round_at = state.elapsed + loop_pause(run, state.poll_interval)
        for source, found, target in advance(run, view):
            self._rests = False
            state.out.append(command_report(run, source, found, target, state.elapsed, view))
            state.out.extend(command_event(run, target))
            if target in (Phase.SURGING, Phase.EVICTING, Phase.DELETING):
                state.aftercare.begin(run, state.store, state.ready_within)
                state.stabilization.begin(run, state.store)
            if target is Phase.FINISHING:
                state.aftercare.left(run.id, state.elapsed)
            if target in (Phase.EVICTING, Phase.DELETING) and source is not Phase.EVICTING:
                self._pods_leave(run)
        state.out.extend(instructions(run, view))
        hangs = draining.warning_due(run, view)
        if hangs is not None:
            state.out += [hangs, publish("Node", hangs.node, "DrainHangs", hangs.message, warning=True)]
        if run.is_over:
            self._end(run, view)

    def _pods_leave(self, run: Run) -> None:
        """Remember what a command is about to move, and what it promised."""
        state = self._state
        state.promise(run)
        if run.method in COST_METHODS and state.settings.rules.remembers_regrowth:
            state.regrowth.begin(run, state.store)
            if self._pause_ends_on_landing():
                state.landing.begin(run, state.store)

    def _pause_ends_on_landing(self) -> bool:
        return self._state.settings.stabilization_ends is StabilizationEnds.LANDED

    def _validate(self, run: Run) -> None:
        """Check a command again on fresh state (docs/rules.md#carrying-out)."""
        assert run.command is not None
        state = self._state
        if not self._needs_validation(run.command):
            run.verdict = Signal.VALIDATED
            flight.adopt(run, run.command, run.candidates, state.now)
            return
        question = state.question(without=run.id, beside=self._to_come_again())
        answer = self._decider.revalidate(run.command, question)
        if isinstance(answer, Refusal):
            run.verdict, run.why = Signal.VALIDATION_REFUSED, answer.why
            if answer.instead is not None:
                better = replace(run)
                flight.adopt(better, answer.instead, run.candidates, state.now)
                self._better.append((state.elapsed, better))
            return
        candidates = self._bind_to_claims(answer, run.id)
        if candidates is None:
            run.verdict, run.why = Signal.VALIDATION_REFUSED, "a node of it has lost its NodeClaim"
            return
        run.verdict = Signal.VALIDATED
        flight.adopt(run, answer, candidates, state.now)

    def _to_come_again(self) -> list[Run]:
        """Return commands refused at this very moment because less would do now, as they are to be found again.

        The room that has come is for them. Without that, one node's room would refuse every command that is validated
        at the same time, though it can serve only one of them.
        """
        self._better = [entry for entry in self._better if entry[0] == self._state.elapsed]
        return [run for _, run in self._better]

    # ------------------------------------------------------------ ending

    def _end(self, run: Run, view: View) -> None:
        """Handle the consequences of a command's end, and look for the next one at once."""
        state = self._state
        del state.runs[run.id]
        state.pacing.ended[run.id] = state.elapsed + ENDED_MEMORY
        self._rests = False
        state.marks_seen = None
        state.regrowth.end(run, state.elapsed, well=run.phase is Phase.DONE)
        state.outcomes.end(run.id, state.elapsed, well=run.phase is Phase.DONE)
        if run.phase is not Phase.DONE:
            state.landing.drop(run.id)
            state.stabilization.drop(run.id)
            if irreversible.has_begun(run, view):
                stay = [entry.node for entry in run.candidates if not is_leaving(run, entry, view)]
                state.aftercare.left(
                    run.id, state.elapsed, stays=[pod for node in stay for pod in state.store.pods_on(node)]
                )
            else:
                state.aftercare.drop(run.id)
        if run.phase is Phase.REFUSED:
            self._refused(run)
            return
        self._refused_last = ()
        self._look_again(state.elapsed)
        if run.phase is not Phase.DONE:
            kept = [name for name in run.replacements if irreversible.keeps(run, name, view)]
            state.pacing.lingering |= dict.fromkeys(kept, state.elapsed + NOMINATED_AFTER)
            self._blame(run, view)
            return
        if run.method is Method.DRIFTED and run.replacements:  # nodes that need none go first, and fast: no measure
            state.rolls.took(run.source_pools, state.elapsed - run.began_at)
        settings, touched = state.settings, state.stabilization.touched(run, state.store)
        state.stabilization.finished(
            run.method, touched, settings.stabilization, settings.stabilization_scope, state.elapsed
        )
        state.landing.end(run.id, state.elapsed, settings.stabilization.cost, touched.pools)
        for pool in run.pools:
            state.pacing.launches.succeeded(pool)
        for entry in run.candidates:
            state.pacing.refusals.succeeded(entry.pool)
        state.pacing.lingering |= dict.fromkeys(run.replacements, state.elapsed + NOMINATED_AFTER)

    def _refused(self, run: Run) -> None:
        """Remember which commands a refused one gives way to, and when to look for the next."""
        state = self._state
        again = run.nodes == self._refused_last
        self._refused_last = run.nodes
        others = tuple(other.id for other in state.runs.values() if other.phase is Phase.VALIDATING)
        open_ones = [(key, ids) for key, ids in self._gives_way.items() if any(i in state.runs for i in ids)]
        self._gives_way = dict(open_ones)
        if others:
            self._gives_way[run.nodes] = others
        # The same refusal twice in a row waits for the next poll: asking at once would spin.
        self._look_again(state.elapsed + state.poll_interval if again else state.elapsed)

    def _look_again(self, at: int) -> None:
        """Ask for a round because a command ended. Karpenter's loop depends on its validations only (`loop_pause`)."""
        if not self._state.settings.rules.waits_for_validation:
            self._state.round_at = at

    def _blame(self, run: Run, view: View) -> None:
        """Back off pools whose replacements failed, or whose nodes, pods or annotations can't be written.

        Longer each time: otherwise the same command would launch and undo its replacements for ever.
        """
        if self._rest_nodes(run, view):
            return
        source, cause = next(((source, found) for source, found in run.history if found in _BLAMES_POOL), (None, None))
        if cause is None or run.attempts.any_failed(Failure.TAKEN) or run.attempts.any_failed(Failure.OCCUPIED):
            return  # not a failure: another controller, or a pod, was faster
        pacing = self._state.pacing
        if source in BEGINNING or (cause is Signal.INSTRUCTION_REFUSED and source is not Phase.LAUNCHING):
            self._back_off(run, pacing.refusals, tuple(entry.pool for entry in run.candidates), "is left alone")
            return
        late = zip(run.replacements, run.pools, strict=False)
        pools = tuple(pool for name, pool in late if not is_initialized(run, name, view))
        self._back_off(run, pacing.launches, pools, "launches nothing")

    def _rest_nodes(self, run: Run, view: View) -> bool:
        """Back off the nodes of a command that pods or a person stopped right before the deletion.

        Otherwise a machine would be launched and undone for them every half minute. A pod that came to an empty node
        needs none of that: the node is not empty any more.
        """
        found = {signal for _, signal in run.history}
        occupied = run.attempts.any_failed(Failure.OCCUPIED) and run.action is not Action.DELETE_EMPTY
        if not (Signal.STILL_REFUSED in found or Signal.HANDS_OFF in found or occupied):
            return False
        state = self._state
        stay = [e.node for e in run.candidates if view.manages(e.pool) and not is_leaving(run, e, view)]
        waits = {node: state.pacing.nodes.failed(node, state.elapsed) for node in stay}
        state.pacing.nodes_why |= dict.fromkeys(stay, run.why)
        longest = max((wait for wait in waits.values() if wait is not None), default=0)
        if longest:
            seconds = longest // SECOND
            state.out.append(NodesBackOff(command_id=run.id, nodes=tuple(stay), seconds=seconds, why=run.why))
        return True

    def _back_off(self, run: Run, memory: BackOff, pools: tuple[str, ...], what: str) -> None:
        for pool in dict.fromkeys(pools):
            pause = memory.failed(pool, self._state.elapsed)
            if pause is not None:
                self._state.out.append(
                    PoolBacksOff(
                        command_id=run.id,
                        pool=pool,
                        what=what,
                        failures=memory.failures(pool),
                        seconds=pause // SECOND,
                        why=run.why,
                    )
                )
