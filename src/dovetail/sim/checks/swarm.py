"""Many short runs with faults, each made from its seed alone: `python -m dovetail.sim.checks.swarm --seeds 0-99`.

A seed determines a small cluster, a policy, events and faults; then the faults end, the cluster settles, and all
promises must be kept. A seed that breaks one prints the command that repeats it, at once; standard error says how far
it is, and Ctrl-C prints the sums so far.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import msgspec

from dovetail.model import names
from dovetail.model.objects import (
    is_true,
)
from dovetail.model.settings import (
    DOVETAIL,
    Search,
    Settings,
    Stabilization,
    StabilizationEnds,
    StabilizationScope,
    SteeringMode,
)
from dovetail.report.words import span
from dovetail.sim.checks.faults import Crashes, FaultyLine, Odds, SlowLine, Trouble
from dovetail.sim.checks.meanwhile import Meanwhile
from dovetail.sim.checks.promises import Violation
from dovetail.sim.checks.small_clusters import KINDS, ZONES, add_workload, add_zones, draw_pool, small_catalogue
from dovetail.sim.checks.watch import Watch
from dovetail.sim.compare import cores
from dovetail.sim.workers import Progress, run_in_workers
from dovetail.sim.world.clock import MINUTE, SECOND, Dice, seconds
from dovetail.sim.world.cloud import CloudTimes
from dovetail.sim.world.host import Host, Line
from dovetail.sim.world.world import World, WorldConfig

TROUBLED: Final = 25 * MINUTE
SETTLING: Final = 3 * MINUTE
LONGEST: Final = 3 * 60 * MINUTE
NEWER_FROM: Final = 300_000
"""Seeds from here on draw the newer rules too; what earlier ones draw stays the same."""
_FIRST_LINE: Final = 2.0
_LINE_EVERY: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one seed."""

    seed: int
    violations: tuple[Violation, ...]
    commands: int
    crashes: int
    events: int
    what: str

    @property
    def repeat(self) -> str:
        """Return the command that repeats it."""
        return f"python -m dovetail.sim.checks.swarm --seeds {self.seed}"


# ---------------------------------------------------------------- one seed


class Trial:
    """One seed: builds its world, injects faults, ends them, and judges the result."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = Dice(seed).stream("trial")
        spot = self.dice.random() < 0.25
        times = CloudTimes(
            create=seconds(1, 3),
            register=seconds(5, 25),
            ready=seconds(2, 10),
            shutdown=seconds(1, 5),
            interruptions_per_hour=0.5 if spot else 0.0,
        )
        self.world = World(WorldConfig(catalogue=small_catalogue(spot=spot), seed=seed, times=times))
        self.watch = Watch(self.world, lag=30 * SECOND, patience=10 * MINUTE)
        self.trouble = Trouble(self.world, self.world.dice.stream("trouble"))
        dice = self.world.dice.stream("meanwhile")
        self.meanwhile = Meanwhile(self.world, dice, dice.choice((0.0, 0.3, 0.7)))
        self.lines: list[FaultyLine] = []
        self.hosts: list[Host] = []
        self.crashes: Crashes | None = None
        self.spot = spot
        self.notes: list[str] = []
        self.commands: dict[str, None] = {}
        self.domain_patience = DOVETAIL.domain_patience

    # ------------------------------------------------------------ the cluster

    def build(self) -> None:
        """Build pools, nodes, workloads, controllers, and what will happen."""
        dice, world = self.dice, self.world
        world.karpenter.images["default"] = "image-1"
        pools = ["blue", "green"][: 1 + (dice.random() < 0.4)]
        for name in pools:
            world.add_pool(draw_pool(world, dice, name, spot=self.spot))
        kinds = [kind[0] for kind in KINDS]
        for index in range(dice.randrange(4, 10)):
            capacity = names.SPOT if self.spot and dice.random() < 0.6 else names.ON_DEMAND
            kind = kinds[dice.randrange(len(kinds))]
            age = dice.randrange(5, 300) * MINUTE
            world.add_node(pools[index % len(pools)], kind, ZONES[dice.randrange(3)], capacity, age=age)
        for index in range(dice.randrange(4, 9)):
            add_workload(world, dice, index)
        self._zones(pools)
        world.run(90 * SECOND)
        self._controllers()
        self._happenings()

    def _zones(self, pools: list[str]) -> None:
        """Let some pools roll zone by zone, by dice of their own, while all else happens."""
        dice = self.world.dice.stream("zones")
        if dice.random() >= 0.3:
            return
        self.notes.append("zone by zone")
        for name in pools:
            add_zones(self.world, dice, name)
        self.domain_patience = dice.choice((MINUTE, 3 * MINUTE, DOVETAIL.domain_patience))
        at, within = self.world.now + dice.randrange(3, 12) * MINUTE, dice.choice((0, MINUTE, 5 * MINUTE))
        self.world.clock.at(at, lambda: self.world.set_image("default", "image-3", within=within))

    # ------------------------------------------------------------ controllers and faults

    def _settings(self) -> Settings:
        window = self.dice.choice((0, 30 * SECOND, 5 * MINUTE))
        waits = Stabilization(empty=window, expired=window, drifted=window, cost=window)
        timeout = self.dice.choice((DOVETAIL.replacement_timeout, 3 * MINUTE))
        settings = replace(
            DOVETAIL, stabilization=waits, replacement_timeout=timeout, domain_patience=self.domain_patience
        )
        return self._newer(self._better(self._other_windows(settings)))

    def _other_windows(self, settings: Settings) -> Settings:
        """Draw another window for each kind of action, and where it holds, by dice of their own."""
        dice = self.world.dice.stream("windows")
        if dice.random() < 0.6:
            return settings
        empty, expired, drifted, cost = (dice.choice((0, 30 * SECOND, 5 * MINUTE)) for _ in range(4))
        waits = Stabilization(empty=empty, expired=expired, drifted=drifted, cost=cost)
        scope = dice.choice((StabilizationScope.POOL, StabilizationScope.POOL, StabilizationScope.CLUSTER))
        return replace(settings, stabilization=waits, stabilization_scope=scope)

    def _better(self, settings: Settings) -> Settings:
        """Switch some of the better decisions on, by dice of their own: what else a seed draws stays the same."""
        dice = self.world.dice.stream("better")
        if dice.random() < 0.5:
            return settings
        self.notes.append("better decisions")
        return replace(
            settings,
            search=dice.choice((Search.VALUE, Search.VALUE, Search.PREFIX)),
            replacements_max=dice.choice((1, 4)),
            evictions_in_order=dice.random() < 0.5,
            stabilization_ends=dice.choice(tuple(StabilizationEnds)),
            steering=dice.choice(tuple(SteeringMode)),
            jobs_wait=dice.random() < 0.5,
            quiet_before_haste=dice.choice((0, 30 * MINUTE)),
        )

    def _newer(self, settings: Settings) -> Settings:
        """Switch some of the newer rules on: one price, and evictions side by side."""
        if self.seed < NEWER_FROM:
            return settings
        dice = self.world.dice.stream("newer")
        return replace(
            settings,
            evictions_in_order=True,
            evictions_side_by_side=dice.random() < 0.8,
            pool_defaults=dice.choice(((), (("restartPrice", "15m"),), (("restartPrice", "0.005"),))),
            launch_price=dice.choice((0, 10 * MINUTE)),
            preferences_open_nodes=dice.random() < 0.5,
            asks_the_scheduler=dice.random() < 0.5,
        )

    def _line(self, name: str) -> Line:
        dice = self.dice
        spread = self.world.dice.stream(f"reach/{name}")
        reach = spread.choice((0, 0, SECOND // 5, 2 * SECOND))
        if dice.random() < 0.3:
            return SlowLine(reach, spread) if reach else Line()
        odds = Odds(
            lost=dice.choice((0.0, 0.05)),
            repeated=dice.choice((0.0, 0.1)),
            late=dice.choice((0.0, 0.05)),
            latest=15 * SECOND,
            jitter=dice.choice((0, SECOND, 3 * SECOND)),
            refused=dice.choice((0.0, 0.1, 0.3)),
            half_done=dice.choice((0.0, 0.1)),
            unanswered=dice.choice((0.0, 0.1)),
            resync=20 * SECOND,
            reach=reach,
        )
        line = FaultyLine(self.world, odds, self.world.dice.stream(f"line/{name}"))
        self.lines.append(line)
        return line

    def _controllers(self) -> None:
        settings = self._settings()
        first = self.world.add_engine(settings, self._line("a"), name="dovetail-a")
        self.hosts.append(first)
        self.watch.follow(first)
        shape = self.dice.random()
        if shape < 0.45:
            points = {self.dice.randrange(1, 25): self.dice.random() < 0.5 for _ in range(self.dice.randrange(1, 4))}
            self.crashes = Crashes(first, points, wait=self.dice.randrange(1, 40) * SECOND)
            self.notes.append("crashes")
        elif shape < 0.65:
            second = self.world.add_engine(settings, self._line("b"), name="dovetail-b")
            self.hosts.append(second)
            self.watch.follow(second)
            second.start(leads=False)
            when = self.world.now + self.dice.randrange(60, 900) * SECOND
            self.trouble.handover(when, first, second, dies=self.dice.random() < 0.5)
            self.notes.append("handover")
        elif shape < 0.75:
            karpenter = self.world.add_karpenter()
            self.hosts.append(karpenter)
            self.watch.follow(karpenter)
            # When Dovetail is introduced, its holds are in place before Karpenter decides again.
            self.world.clock.after(90 * SECOND, karpenter.start)
            self.meanwhile.others.append(karpenter)
            self.notes.append("beside karpenter")
        if not self.lines:
            self.watch.lag = 15 * SECOND  # nothing is lost or late but for the time between two looks
        for host in self.hosts:
            self.meanwhile.follow(host)
        first.on_instruction.append(lambda host, asked: self._count(asked))
        first.start()

    def _count(self, asked: object) -> None:
        ident = getattr(asked, "command_id", "")
        if ident:
            self.commands[ident] = None

    def _happenings(self) -> None:
        """Plan what happens to the cluster while faults occur: some of it ordinary, some of it not."""
        dice, world = self.dice, self.world
        begin = world.now

        def some(chance: float, plan: Callable[[int], object]) -> None:
            if dice.random() < chance:
                plan(begin + dice.randrange(TROUBLED))

        for _ in range(dice.randrange(2, 7)):
            world.clock.at(begin + dice.randrange(TROUBLED), self._scale)
        within = dice.choice((0, 0, 5 * MINUTE))
        some(0.35, lambda at: world.clock.at(at, lambda: world.set_image("default", "image-2", within=within)))
        some(0.2, lambda at: world.clock.at(at, lambda: self._new_template(within)))
        some(0.25, lambda at: self.trouble.stillborn(at, 6 * MINUTE))
        some(0.25, self.trouble.death)
        some(0.4, self._deaf)
        some(0.2, lambda at: self.trouble.clock_jump(at, self.hosts[0], timedelta(seconds=dice.randrange(-600, 600))))
        some(0.4, self.trouble.price_move)
        some(0.25, self.trouble.budget_change)
        some(0.2, self.trouble.policy_change)
        some(0.3, lambda at: self.trouble.out_of_stock(at, 5 * MINUTE))
        if len(self.hosts) == 1:
            some(0.3, lambda at: self.trouble.crash(at, self.hosts[0], dice.randrange(1, 60) * SECOND))
        some(0.3, self.trouble.forged_record)
        self._pauses(begin)
        self._sickness(begin)

    def _sickness(self, begin: int) -> None:
        """Plan illnesses of nodes, by dice of their own."""
        dice = self.world.dice.stream("sickness")
        for _ in range(dice.choice((0, 0, 1, 2, 4))):
            self.trouble.sickness(begin + dice.randrange(TROUBLED))

    def _pauses(self, begin: int) -> None:
        """Pause pools for a while, by dice of their own."""
        for name in sorted(self.world.store.pools):
            dice = self.world.dice.stream(f"pause/{name}")
            if dice.random() < 0.2:
                at, length = begin + dice.randrange(TROUBLED), dice.randrange(2, 15) * MINUTE
                self.world.clock.at(at, lambda name=name: self._annotate_pool(name, "true"))
                self.world.clock.at(at + length, lambda name=name: self._annotate_pool(name, None))

    def _annotate_pool(self, name: str, value: str | None) -> None:
        pool = self.world.store.pools.get(name)
        if pool is not None:
            kept = {key: text for key, text in pool.metadata.annotations.items() if key != names.PAUSED}
            marks = kept if value is None else {**kept, names.PAUSED: value}
            meta = msgspec.structs.replace(pool.metadata, annotations=marks)
            self.world.set_pool(msgspec.structs.replace(pool, metadata=meta))

    def _deaf(self, at: int) -> None:
        """Plan some minutes in which Karpenter misses pod events."""
        length = self.dice.randrange(3, 12) * MINUTE
        self.trouble.deaf(at, length)
        for _ in range(6):
            self.world.clock.at(at + self.dice.randrange(length), self._scale)

    def _new_template(self, within: int) -> None:
        for pool in sorted(self.world.store.pools):
            self.world.set_template_labels(pool, {"team": "b"}, within=within)

    def _scale(self) -> None:
        sets = [("ReplicaSet", key) for key in self.world.workloads.keys("ReplicaSet")]
        sets += [("StatefulSet", key) for key in self.world.workloads.keys("StatefulSet")]
        if sets:
            kind, key = sets[self.dice.randrange(len(sets))]
            self.world.scale(
                kind, key, max(0, self.world.workloads.desired(kind, key) + self.dice.choice((-2, -1, 1, 2)))
            )

    # ------------------------------------------------------------ the run

    def run(self) -> Outcome:
        """Run with faults, end them, wait until the cluster settles, and judge the result."""
        self.build()
        end = self.world.now + TROUBLED
        self.world.run(end)
        self._heal()
        limit = self.world.now + LONGEST
        calm = 0
        while self.world.now < limit and calm < 2:
            self.world.run(self.world.now + SETTLING)
            calm = calm + 1 if self._is_quiet() else 0
        if calm < 2:
            self.watch.note("never-quiet", f"not at rest after {LONGEST // MINUTE} min without trouble")
        self.watch.ended()
        return Outcome(
            seed=self.seed,
            violations=tuple(self.watch.violations),
            commands=len(self.commands),
            crashes=sum(host.starts - 1 for host in self.hosts),
            events=self.world.clock.happened,
            what=", ".join(self.notes),
        )

    def _heal(self) -> None:
        self.trouble.over = True
        self.meanwhile.heal()
        for line in self.lines:
            line.well = True
        for host in self.hosts:
            host.skew = timedelta(0)
            host.before_act = host.after_act = lambda host, asked: True
        self.world.karpenter.bad_images.clear()
        self.world.karpenter.is_deaf = False
        self.world.cloud.dry.clear()
        for node in self.world.sickness.nodes:
            self.world.sickness.end(node)
        self.world.cloud.times = replace(self.world.cloud.times, interruptions_per_hour=0.0)

    def _is_quiet(self) -> bool:
        leaders = [host for host in self.hosts if host.is_up and host.engine.acts]
        if not leaders or any(host.engine.runs or host.engine.lingering for host in leaders):
            return False
        pods, claims = self.world.store.pods.values(), self.world.store.claims.values()
        if any(pod.metadata.deletion_timestamp is not None or pod.status.phase != "Running" for pod in pods):
            return False
        return all(
            claim.metadata.deletion_timestamp is None and is_true(claim.status.conditions, names.CONDITION_INITIALIZED)
            for claim in claims
        )


def run_seed(seed: int) -> Outcome:
    """Run one short simulation with faults."""
    return Trial(seed).run()


# ---------------------------------------------------------------- many seeds


def run_seeds(
    seeds: range, workers: int | None = None, done: Callable[[Outcome], None] = lambda outcome: None
) -> list[Outcome]:
    """Run all seeds, using all cores, and return their outcomes in order; `done` hears of each when it ends."""
    workers = cores() if workers is None else workers
    if workers > 1 and len(seeds) > 1:
        return run_in_workers(_work, seeds, workers, done=lambda _, outcome: done(outcome))
    outcomes = []
    for seed in seeds:
        outcomes.append(run_seed(seed))
        done(outcomes[-1])
    return outcomes


def _work(seed: int, _: Progress) -> Outcome:
    return run_seed(seed)


class SeedTally:
    """Counts outcomes as they come, prints broken promises at once, and says now and then how far it is."""

    def __init__(self, seeds: int, clock: Callable[[], float] = time.monotonic) -> None:  # noqa: TID251 - for the time left
        self.seeds, self.failed = seeds, 0
        self._clock, self._began = clock, clock()
        self._next = self._began + _FIRST_LINE
        self._done = self._commands = self._crashes = 0

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        self._done += 1
        self._commands += outcome.commands
        self._crashes += outcome.crashes
        if outcome.violations:
            self.failed += 1
            for violation in outcome.violations[:5]:
                sys.stdout.write(f"seed {outcome.seed} at {violation.at} s: {violation.rule}: {violation.what}\n")
            sys.stdout.write(f"  repeat it: {outcome.repeat}\n")
            sys.stdout.flush()
        self._progress()

    def _progress(self) -> None:
        now = self._clock()
        if now < self._next or self._done == self.seeds:
            return
        self._next = now + _LINE_EVERY
        left = (now - self._began) * (self.seeds - self._done) / self._done
        sys.stderr.write(
            f"{self._done} of {self.seeds} seeds, {self.failed} broke a promise, about {span(max(1, left))} left\n"
        )
        sys.stderr.flush()

    def sums(self) -> str:
        """Return the last line."""
        seeds = (
            f"{self._done} seeds" if self._done == self.seeds else f"stopped after {self._done} of {self.seeds} seeds"
        )
        return f"{seeds}, {self._commands} commands, {self._crashes} crashes, {self.failed} seeds broke a promise\n"


def parse_seeds(text: str) -> range:
    """Parse seeds: `7` or `0-99`."""
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of seeds; write 7 or 0-99")
    return range(int(first), int(last if dash else first) + 1)


def main(arguments: list[str] | None = None) -> int:
    """Run seeds; return 1 if a promise was broken, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m dovetail.sim.checks.swarm", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=parse_seeds, default=range(100), metavar="A-B", help="default 0-99")
    parser.add_argument("--workers", type=int, default=None, metavar="N", help="processes; default all cores")
    args = parser.parse_args(arguments)
    tally = SeedTally(len(args.seeds))
    try:
        run_seeds(args.seeds, args.workers, tally.add)
    except KeyboardInterrupt:
        sys.stdout.write(tally.sums())
        return 130
    sys.stdout.write(tally.sums())
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
