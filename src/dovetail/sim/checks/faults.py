"""Fault injection for a simulated cluster.

Connections that lose, repeat, reorder and delay; calls that fail, half fail or are not answered; crashes around
instructions; machines that never join or die; pod events that Karpenter misses; clocks that jump; changes in
mid-command; a change of leader.

Each fault has its own random stream, so that a seed repeats it. `sim.checks.checkers` judges whether an engine copes. A
crash loses everything the engine knew; the next one starts from the objects alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from msgspec.structs import replace

from dovetail.lifecycle.commands.records import Candidate, Record, encode_record
from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.messages import (
    Event,
    Failure,
    InstructionFailed,
)
from dovetail.model import names
from dovetail.model.command import Action, Method
from dovetail.model.money import parse_money
from dovetail.model.objects import BudgetSpec
from dovetail.sim.world.actuate import Answer, ClusterInstruction
from dovetail.sim.world.clock import MINUTE, SECOND
from dovetail.sim.world.host import Host, Line
from dovetail.sim.world.world import World

_TRANSIENT = (Failure.CONFLICT, Failure.THROTTLED, Failure.UNREACHABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """How often each thing goes wrong (0 to 1), and how late is late (nanoseconds)."""

    lost: float = 0.0
    repeated: float = 0.0
    late: float = 0.0
    latest: int = 20 * SECOND
    jitter: int = 2 * SECOND
    refused: float = 0.0
    half_done: float = 0.0
    unanswered: float = 0.0
    resync: int = 45 * SECOND
    reach: int = 0


class SlowLine(Line):
    """A connection that loses nothing; each call takes its own time to arrive, `longest` nanoseconds at most."""

    spreads_calls = True

    def __init__(self, longest: int, dice: Random) -> None:
        self.longest = longest
        self.dice = dice

    def reach(self, asked: ClusterInstruction) -> int:
        """Draw the time that a call takes to arrive."""
        return self.dice.randrange(self.longest + 1)

    def call(self, asked: ClusterInstruction, act: Callable[[], Answer]) -> list[tuple[int, Answer]]:
        """Execute a call, and draw the time of its answer."""
        return [(self.call_delay + self.dice.randrange(self.longest + 1), act())]


class FaultyLine(Line):
    """A connection on which events and calls fail at random. What is lost is seen again at the next resync."""

    batches = False

    def __init__(self, world: World, odds: Odds, dice: Random) -> None:
        self.world = world
        self.odds = odds
        self.dice = dice
        self.well = False
        self.spreads_calls = odds.reach > 0

    def reach(self, asked: ClusterInstruction) -> int:
        """Draw the time that a call takes to arrive."""
        return self.dice.randrange(self.odds.reach + 1)

    def events(self, event: Event) -> list[tuple[int, Event]]:
        """Return an event as it arrives: lost, repeated, reordered or delayed."""
        odds, dice = self.odds, self.dice
        if self.well:
            return [(self.watch_delay, event)]
        delay = self.watch_delay + dice.randrange(odds.jitter + 1)
        chance = dice.random()
        if chance < odds.lost:
            return [(odds.resync, event)]
        if chance < odds.lost + odds.late:
            return [(dice.randrange(SECOND, odds.latest + 1), event)]
        if chance < odds.lost + odds.late + odds.repeated:
            return [(delay, event), (delay + dice.randrange(1, odds.latest + 1), event)]
        return [(delay, event)]

    def call(self, asked: ClusterInstruction, act: Callable[[], Answer]) -> list[tuple[int, Answer]]:
        """Refuse a call, or execute it and lose or falsify the answer."""
        odds, dice = self.odds, self.dice
        if self.well:
            return [(self.call_delay, act())]
        delay = self.call_delay + dice.randrange(odds.jitter + 1)
        chance = dice.random()
        if chance < odds.refused:
            failure = _TRANSIENT[dice.randrange(len(_TRANSIENT))]
            return [(delay, InstructionFailed(id=asked.id, failure=failure, detail="injected"))]
        answer = act()
        if chance < odds.refused + odds.half_done:
            return [
                (delay, InstructionFailed(id=asked.id, failure=Failure.UNREACHABLE, detail="cut off after the write"))
            ]
        if chance < odds.refused + odds.half_done + odds.unanswered:
            return []
        return [(delay, answer)]


class Crashes:
    """Stops an engine around its n-th call: before it is executed, or right after, before any answer."""

    def __init__(self, host: Host, points: dict[int, bool], wait: int = 5 * SECOND) -> None:
        self.host = host
        self.points = points
        self.wait = wait
        self.calls = 0
        host.before_act = self._before
        host.after_act = self._after

    def _before(self, host: Host, asked: ClusterInstruction) -> bool:
        self.calls += 1
        if self.points.get(self.calls) is False:
            host.restart(self.wait)
            return False
        return True

    def _after(self, host: Host, asked: ClusterInstruction) -> bool:
        if self.points.get(self.calls) is True:
            host.restart(self.wait)
            return False
        return True


class Trouble:
    """Faults of the world itself, planned on its clock."""

    def __init__(self, world: World, dice: Random) -> None:
        self.world = world
        self.dice = dice
        self.over = False

    def _at(self, when: int, action: Callable[[], None]) -> None:
        def happen() -> None:
            if not self.over:
                action()

        self.world.clock.at(when, happen)

    def stillborn(self, when: int, length: int) -> None:
        """Start a fault: machines launched in this time are paid for but never join."""
        karpenter = self.world.karpenter

        def begin() -> None:
            self.world.outside("machines stop joining")
            before = dict(karpenter.images)
            karpenter.bad_images.update(before.values())

            def end() -> None:
                karpenter.bad_images.difference_update(before.values())

            self.world.clock.after(length, end)

        self._at(when, begin)

    def deaf(self, when: int, length: int) -> None:
        """Start a fault: Karpenter misses the pod events of this time."""
        karpenter = self.world.karpenter

        def begin() -> None:
            karpenter.is_deaf = True
            self.world.clock.after(length, end)

        def end() -> None:
            karpenter.is_deaf = False

        self._at(when, begin)

    def death(self, when: int) -> None:
        """Kill a machine."""

        def die() -> None:
            alive = sorted(self.world.cloud.instances)
            if alive:
                self.world.kill(alive[self.dice.randrange(len(alive))])

        self._at(when, die)

    def sickness(self, when: int) -> None:
        """Start a node's illness, for some minutes or until everything heals."""

        def fall_ill() -> None:
            nodes = sorted(self.world.store.nodes)
            if nodes:
                condition, status = self.dice.choice(
                    (("Ready", "Unknown"), ("Ready", "False"), ("KernelDeadlock", "True"))
                )
                length = self.dice.choice((3 * MINUTE, 10 * MINUTE, None))
                self.world.fall_ill(nodes[self.dice.randrange(len(nodes))], condition, status, length)

        self._at(when, fall_ill)

    def clock_jump(self, when: int, host: Host, by: timedelta) -> None:
        """Set the engine's wall clock forward or back."""

        def jump() -> None:
            host.skew += by

        self._at(when, jump)

    def price_move(self, when: int) -> None:
        """Change one price a lot."""

        def move() -> None:
            kinds = self.world.cloud.catalogue.instance_types
            kind = kinds[self.dice.randrange(len(kinds))]
            offering = kind.offerings[self.dice.randrange(len(kind.offerings))]
            price = round(offering.price_float * self.dice.choice((0.6, 0.8, 1.25, 1.6)), 4)
            self.world.outside("a price moves")
            key = (kind.name, offering.zone, offering.capacity_type)
            self.world.cloud.set_price(key, parse_money(str(price)), price)

        self._at(when, move)

    def budget_change(self, when: int) -> None:
        """Change a pool's budget: shrink, grow or close it."""

        def tighten() -> None:
            pools = sorted(self.world.store.pools)
            pool = self.world.store.pools[pools[self.dice.randrange(len(pools))]]
            nodes = self.dice.choice(("0", "1", "10%", "50%"))
            disruption = replace(pool.spec.disruption, budgets=(BudgetSpec(nodes=nodes),))
            self.world.set_pool(replace(pool, spec=replace(pool.spec, disruption=disruption)))

        self._at(when, tighten)

    def policy_change(self, when: int) -> None:
        """Change a pool's timers."""

        def turn() -> None:
            pools = sorted(self.world.store.pools)
            pool = self.world.store.pools[pools[self.dice.randrange(len(pools))]]
            grace = self.dice.choice((None, "5m", "20m"))
            after = self.dice.choice(("0s", "30s", "2m"))
            disruption = replace(pool.spec.disruption, consolidation_grace_period=grace, consolidate_after=after)
            self.world.set_pool(replace(pool, spec=replace(pool.spec, disruption=disruption)))

        self._at(when, turn)

    def forged_record(self, when: int) -> None:
        """Write a forged command record on a node: broken, or one that names other nodes."""

        def forge() -> None:
            store, dice = self.world.store, self.dice
            victims = sorted(store.nodes)
            if not victims:
                return
            node = store.nodes[victims[dice.randrange(len(victims))]]
            item = node if dice.random() < 0.5 else store.claims.get(store.claim_of.get(node.metadata.name, ""), node)
            text = _forgery(self.world, dice.randrange(4))
            self.world.outside(f"a forged record on {item.metadata.name}")
            store.touch_meta(item, annotations={**item.metadata.annotations, names.COMMAND: text})

        self._at(when, forge)

    def out_of_stock(self, when: int, length: int) -> None:
        """Set a type out of stock for a while."""

        def dry() -> None:
            kinds = self.world.cloud.catalogue.instance_types
            kind = kinds[self.dice.randrange(len(kinds))]
            self.world.outside("out of stock")
            for offering in kind.offerings:
                key = (kind.name, offering.zone, offering.capacity_type)
                self.world.cloud.run_dry(key, self.world.now + length)

        self._at(when, dry)

    def crash(self, when: int, host: Host, wait: int) -> None:
        """Stop an engine and start it again."""
        self._at(when, lambda: host.restart(wait) if host.is_up else None)

    def handover(self, when: int, leader: Host, other: Host, *, dies: bool) -> None:
        """Move the lease to another process: the first one steps down, or is simply gone."""

        def turn() -> None:
            if not leader.is_up:
                return
            if dies:
                leader.crash()
                self.world.clock.after(15 * SECOND, lambda: other.lead(leads=True))
                self.world.clock.after(2 * MINUTE, lambda: None if leader.is_up else leader.start(leads=False))
            else:
                leader.lead(leads=False)
                self.world.clock.after(2 * SECOND, lambda: other.lead(leads=True))

        self._at(when, turn)


def _forgery(world: World, how: int) -> str:
    """Return a record that Dovetail did not write: of another kind for each number."""
    claims = sorted(world.store.claims.values(), key=lambda claim: claim.metadata.name)
    lie = Record(
        id="forged",
        action=Action.REPLACE_DRIFTED,
        method=Method.DRIFTED,
        phase="waiting",
        since=world.clock.instant(),
        nodes=tuple(
            Candidate(
                node=claim.status.node_name,
                claim=claim.metadata.name,
                uid=claim.metadata.uid,
                pool=claim.metadata.labels.get(names.NODEPOOL, ""),
            )
            for claim in claims
        ),
        replacements=tuple(claim.metadata.name for claim in claims[:2]),
    )
    if how == 0:
        return '{"nodes":' * 5000 + "1" + "}" * 5000
    if how == 1:
        return encode_record(replace(lie, since=lie.since.replace(tzinfo=None)))
    return encode_record(lie) if how == 2 else Seal((b"a key of somebody else",)).sealed(encode_record(lie))
