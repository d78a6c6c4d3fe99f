"""The outcome of a command, as a report: promised and kept. Sits at the bottom of lifecycle, below `reports`."""

from dataclasses import dataclass
from typing import ClassVar

from dovetail.model.command import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """The outcome of a command within an hour of its end (`memory.outcomes`).

    `promised`: dollars per hour, and so the dollars of that hour; `saved`: dollars. `reopened`: nodes that a
    provisioner opened in its pools since. `pods`: how many it moved; `moved_again`: how many of those another command
    moved since.
    """

    topic: ClassVar[str] = "outcome"
    command_id: str
    action: Action
    pools: tuple[str, ...]
    promised: float
    saved: float
    reopened: int
    pods: int
    moved_again: int

    @property
    def held(self) -> bool:
        """Return whether it kept at least nine tenths of its promise, and moved no pod that was soon moved again."""
        return self.saved >= 0.9 * self.promised and not self.moved_again

    @property
    def message(self) -> str:
        """Return it in words."""
        return (
            f"{self.action.value} promised ${self.promised:.4g}/h and saved ${self.saved:.4g} in its first hour; "
            f"{self.reopened} node{'' if self.reopened == 1 else 's'} reopened, {self.moved_again} of {self.pods} "
            f"pod{'' if self.pods == 1 else 's'} moved again"
        )

    @property
    def figures(self) -> dict[str, str | int | float]:
        """Return everything, lists joined by commas."""
        return {
            "action": self.action.value,
            "pools": ",".join(self.pools),
            "promised": self.promised,
            "saved": self.saved,
            "reopened": self.reopened,
            "pods": self.pods,
            "movedAgain": self.moved_again,
        }
