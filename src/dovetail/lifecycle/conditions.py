"""Reports on the NodePool itself that its disruption policy can't be read (docs/rules.md#policy).

A broken budget allows nothing for the reasons it names; the condition on the object says why. The
condition is `DovetailPolicyReadable`: False with the problems, True once they are gone; a pool without any gets none.
Checks only pools that changed. Sits in lifecycle, below `engine`.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Final

from dovetail.api.policy import effective_policy
from dovetail.lifecycle.commands.attempts import Attempts
from dovetail.lifecycle.messages import InstructionFailed, InstructionSucceeded, SetPoolCondition
from dovetail.lifecycle.store import Store
from dovetail.model.objects import NodePool, condition
from dovetail.model.settings import Settings

POLICY_READABLE: Final = "DovetailPolicyReadable"
_MESSAGE_MAX: Final = 1000


class Conditions:
    """Which pools still need a condition."""

    def __init__(self) -> None:
        self._open: dict[str, None] = {}
        self._attempts = Attempts()
        self._said: dict[str, set[str]] = {}

    def look_at(self, pool: str) -> None:
        """Record that a pool is new or has changed."""
        self._open[pool] = None
        said = self._said.get(pool, set())
        for ident in [ident for ident in said if self._attempts.succeeded(ident)]:
            self._attempts.forget(ident)
            said.remove(ident)

    def answer(self, event: InstructionSucceeded | InstructionFailed, elapsed: int) -> bool:
        """Record an answer; False if it was not about a condition."""
        return self._attempts.answer(event, elapsed)

    def next_at(self) -> int | None:
        """Return when something is due again."""
        return self._attempts.next_at() if self._open else None

    def wanted(
        self, store: Store, settings: Settings, manages: Callable[[str], bool], elapsed: int
    ) -> list[SetPoolCondition]:
        """Build the instructions for conditions that are due."""
        asked = []
        for name in sorted(self._open):
            pool = store.get(NodePool, name)
            worded = None if pool is None or not manages(name) else _need(pool, settings)
            if worded is None or self._attempts.succeeded(worded.id):
                del self._open[name]
            elif self._attempts.due(worded.id, elapsed):
                self._attempts.ask(worded.id, elapsed)
                self._said.setdefault(name, set()).add(worded.id)
                asked.append(worded)
        return asked


def _need(pool: NodePool, settings: Settings) -> SetPoolCondition | None:
    problems = effective_policy(pool, settings).problems
    now = condition(pool.status.conditions, POLICY_READABLE)
    if not problems:
        if now is None or now.status == "True":
            return None
        return _build(pool.metadata.name, "True", "Readable", "The disruption policy can be read.")
    message = " ".join(problems)[:_MESSAGE_MAX]
    if now is not None and now.status == "False" and now.message == message:
        return None
    return _build(pool.metadata.name, "False", "Unreadable", message)


def _build(pool: str, status: str, reason: str, message: str) -> SetPoolCondition:
    digest = sha256(message.encode()).hexdigest()[:10]
    return SetPoolCondition(
        id=f"condition/{pool}/{status}/{digest}",
        node_pool=pool,
        type=POLICY_READABLE,
        status=status,
        reason=reason,
        message=message,
    )
