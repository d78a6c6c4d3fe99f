"""A memory that rounds share: what it may keep, and what the time or a change takes away."""

from datetime import timedelta

from dovetail.decide.decider import Decider
from dovetail.decide.in_flight import LeavingNode
from dovetail.decide.outcome import RoundResult
from dovetail.model.command import Method
from tests.support.design_world import Town, kind


class _Shell:
    """Asks round after round with one memory, as the controller does."""

    def __init__(self) -> None:
        self.town = Town(kind("m", "0.10"))
        self.town.pool(disruption={"consolidateAfter": "10m"})
        for name in ("a", "b"):
            self.town.node(name, "m")
            self.town.pod(f"on-{name}", name)
            self.town.event(name)
        self.catalogue, self.decider = self.town.catalogue, Decider()

    def ask(self) -> RoundResult:
        return self.decider.round(self.town.question(catalogue=self.catalogue))

    def verdicts(self) -> dict[str, str]:
        return {verdict.node: verdict.verdict for verdict in self.ask().verdicts}


def test_a_timer_that_runs_out_opens_a_node_that_was_remembered_closed() -> None:
    """The timer consolidateAfter ends between two rounds in which no object changed: the second acts."""
    shell = _Shell()
    assert shell.ask().commands == ()
    shell.town.now += timedelta(minutes=9)
    assert shell.ask().commands == ()
    shell.town.now += timedelta(minutes=1)
    assert shell.ask().commands != ()


def test_a_node_in_flight_is_not_remembered_as_staying() -> None:
    """A command that begins or ends between two rounds changes what was read of its node."""
    shell = _Shell()
    shell.town.now += timedelta(minutes=20)
    assert shell.ask().commands != ()
    shell.town.leaving["a"] = LeavingNode(node="a", method=Method.SINGLE_NODE, since=shell.town.now)
    assert shell.verdicts()["a"] == "marked-for-deletion"
    del shell.town.leaving["a"]
    assert shell.verdicts()["a"] != "marked-for-deletion"


def test_a_pdb_counts_only_where_it_allows_nothing() -> None:
    """A PDB that comes to allow nothing stops a node that was remembered as free, and frees it again."""
    shell = _Shell()
    town = shell.town
    town.pod("guarded", "a", labels={"app": "web"})
    town.now += timedelta(minutes=20)
    for allowed, stops in ((2, False), (1, False), (0, True), (1, False)):
        town.others.clear()
        town.pdb("guard", {"app": "web"}, allowed=allowed)
        assert (shell.verdicts()["a"] == "pdb") is stops
