"""Writes the digest of an engine's journal; run as a program by the determinism tests, under many hash seeds."""

import sys
from hashlib import sha256

from dovetail.lifecycle.journal import encode_header, encode_line
from tests.support.lifecycle_world import CALM, Driver, ScriptedPlanner, World, engine_for


def digest() -> str:
    """Run three pools with good, failing and vanishing replacements, and hash all that went in and came out."""
    world = World()
    for pool in ("web", "batch", "cache"):
        world.add_pool(pool)
        for index, wish in enumerate(("replace", "delete", "cost-replace", "replace2", "")):
            world.add_node(f"{pool}-{index}", pool=pool, want=wish)
    launch = world.initialize
    world.initialize = lambda name: None if name.startswith("batch") else launch(name)  # type: ignore[method-assign]
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=6)))
    hashed = sha256(encode_header(driver.engine))
    driver.begin().run(1800)
    for at, event, out in driver.journal:
        hashed.update(encode_line(at, event, out))
    return f"{hashed.hexdigest()} {len(driver.journal)}"


if __name__ == "__main__":
    sys.stdout.write(digest())
