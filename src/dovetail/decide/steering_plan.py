"""What steering proposes, as values (docs/rules.md#steering). Sits in decide, below the round's outcome."""

from typing import Final

import msgspec


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """The pod of a ReplicaSet that a scale-down should take next."""

    owner: str
    namespace: str
    name: str
    uid: str


class SteeringPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes to close and the pods to mark; `worth`: dollars per hour and pod of the closing nodes."""

    closing: tuple[str, ...] = ()
    victims: tuple[Victim, ...] = ()
    worth: tuple[tuple[str, float], ...] = ()


NOTHING: Final = SteeringPlan()
