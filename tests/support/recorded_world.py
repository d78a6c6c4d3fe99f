"""Records a simulated run with the recorder's own parts: what a real cluster would have left on disk."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dovetail.model.cluster import Cluster
from dovetail.recordings.fold import Fold
from dovetail.recordings.store import HourFile, new_file, write_manifest
from dovetail.sim.run import add_controllers
from dovetail.sim.scenarios.scenario import Policy, Scenario
from dovetail.sim.scenarios.stage import Stage
from dovetail.sim.world.clock import SECOND
from dovetail.sim.world.store import Change
from dovetail.sim.world.world import World


def _with_other_uids(tree: dict[str, Any]) -> dict[str, Any]:
    """Return an object under a uid that no simulated world makes itself: a replay makes its own."""
    meta = tree["metadata"]
    return {**tree, "metadata": {**meta, "uid": f"recorded-{meta['uid']}"}} if "uid" in meta else tree


def record_run(
    scenario: Scenario,
    policy: Policy,
    folder: Path,
    *,
    length: int,
    seed: int = 0,
    file_length: timedelta = timedelta(hours=1),
    looks: tuple[int, ...] = (),
    look: Callable[[datetime, Cluster], None] = lambda at, cluster: None,
    heard: Callable[[Change, datetime], None] = lambda change, at: None,
) -> World:
    """Run a scenario for a time after its warm-up and write its recording; `look` sees the cluster at some seconds.

    `heard` gets everything that the recorder gets.
    """
    world = Stage(scenario, policy, seed).build()
    world.run(scenario.warm_up)
    prices = {
        (kind.name, offering.zone, offering.capacity_type): repr(offering.price_float)
        for kind in world.cloud.catalogue.instance_types
        for offering in kind.offerings
    }
    fold = Fold(
        cluster="simulated",
        catalogue="scenario",
        price_of=lambda kind, zone, bought: prices.get((kind, zone, bought)),
        rewrite=_with_other_uids,
    )
    file: list[HourFile] = []

    def begin() -> None:
        if file:
            file.pop().close(world.clock.instant())
        file.append(new_file(folder, world.clock.instant().replace(microsecond=0)))
        file[0].write(fold.begin(world.clock.instant()))

    def changed(change: Change) -> None:
        now = world.clock.instant()
        heard(change, now)
        if now - file[0].begins > file_length:
            begin()
        if change.new is not None:
            file[0].write(fold.observe(change.new, now))
        else:
            namespace, _, name = change.key.rpartition("/")
            file[0].write(fold.vanish(change.kind, namespace, name, now))

    for change in world.store.history():
        assert change.new is not None
        fold._begins = world.clock.instant()
        fold.observe(change.new, world.clock.instant())
        heard(change, world.clock.instant())
    begin()
    world.store.listen(changed)
    _, hosts = add_controllers(world, policy)
    for host in hosts:
        host.start()
    for second in sorted({*looks, length // SECOND}):
        world.run(scenario.warm_up + second * SECOND)
        if second in looks:
            look(world.clock.instant(), world.store.cluster())
    file.pop().close(world.clock.instant())
    write_manifest(folder, "simulated", "scenario", (), "test")
    return world
