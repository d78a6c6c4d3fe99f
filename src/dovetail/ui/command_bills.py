"""What commands take off the bill and what their replacements add to it, as the commands' own savings count.

Without commitments that is a sum of prices. With them nodes share what is paid for in advance, so commands under way
are taken one after the other, the oldest first (`decide.billing`). What a command takes off is kept from when it was
first seen: later the bill changes for other reasons. Sits in ui, below `history` and `outcomes`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dovetail.decide.billing import Billing
from dovetail.model.commitments import BilledMachine
from dovetail.model.money import as_float
from dovetail.ui.commands import CommandNow


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Dollars an hour: what the nodes of a command took off the bill, and what those that came added."""

    went: float
    came: float
    replacements: int


class CommandBills:
    """Updated with every look at the cluster."""

    def __init__(self) -> None:
        self._machines: Mapping[str, BilledMachine] = {}
        self._worth: dict[str, Worth] = {}

    def take(self, billing: Billing, commands: Iterable[CommandNow]) -> Mapping[str, Worth]:
        """Return the worth of each command by its id."""
        ordered = sorted(commands, key=lambda entry: (entry.since, entry.id))
        bills = billing.in_turn([(entry.nodes, entry.coming) for entry in ordered], self._machines)
        found: dict[str, Worth] = {}
        for entry, (went, came) in zip(ordered, bills, strict=True):
            worth = Worth(went=as_float(went), came=as_float(came), replacements=len(entry.coming))
            known = self._worth.get(entry.id)
            if known is not None:
                newest = worth if worth.replacements > known.replacements else known
                worth = Worth(went=known.went, came=newest.came, replacements=newest.replacements)
            found[entry.id] = worth
        named = {name for entry in ordered for name in entry.nodes}
        gone = {name: machine for name, machine in self._machines.items() if name in named}
        self._machines, self._worth = {**gone, **billing.machines}, found
        return found
