"""Answers one question after the other, with what earlier ones found.

The memory never changes an answer, it only saves time: `Decider(memory=False)` is the oracle that the one with memory
is tested against. Not thread-safe. Sits on top of decide; the engine, the planner and the simulated Karpenter use it.
"""

from dovetail.decide.memory import Memory
from dovetail.decide.question import Question
from dovetail.decide.refusal import Refusal
from dovetail.decide.revalidate import revalidate
from dovetail.decide.round import RoundResult, decide
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model.command import Command


class Decider:
    """Answers questions, one after the other. `memory=False`: read everything again for every question."""

    def __init__(self, *, memory: bool = True) -> None:
        self._memory = Memory() if memory else None

    def scene(self, question: Question) -> Scene:
        """Return the view of the cluster that the methods of a round decide on."""
        return Scene.of(question, self._memory)

    def round(self, question: Question, *, every_method: bool = False, every_candidate: bool = False) -> RoundResult:
        """Return what to do now and why nothing more; the options are those of `plan_round`."""
        return decide(Work(self.scene(question)), every_method=every_method, every_candidate=every_candidate)

    def revalidate(self, command: Command, question: Question) -> Command | Refusal:
        """Check a command again on fresh state: return it, a part of it, or the gate that it fails.

        `question.in_flight` must not contain the command itself.
        """
        return revalidate(command, Work(self.scene(question)))
