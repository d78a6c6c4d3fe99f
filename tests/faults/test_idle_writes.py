"""A controller that is busy writes nothing twice: each of its writes changes the object that it is about.

Many short runs with faults, restarts, steering, rolls and evictions (`dovetail.sim.checks.swarm`), with a look at every
write on its way to the simulated API server. tests/e2e/test_busy_writes.py looks at a real one.
"""

from collections import Counter

import pytest

from dovetail.lifecycle.effects.objects import patched
from dovetail.lifecycle.effects.writes import Patch, Write
from dovetail.sim.checks.swarm import run_seed
from dovetail.sim.world.actuate import Actuator

_WRITTEN = ("Node", "NodeClaim", "NodePool", "Pod", "Deployment")


def test_every_write_of_a_busy_controller_changes_its_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """No patch sets a value that the object already has."""
    idle: list[str] = []
    made: Counter[str] = Counter()
    write_to_store = Actuator.write

    def watched(self: Actuator, write: Write) -> str:
        item = self._find(write.ref) if isinstance(write, Patch) else None
        if isinstance(write, Patch) and item is not None and item.metadata.resource_version == write.resource_version:
            made[write.ref.kind] += 1
            if patched(item, write) == item:
                idle.append(f"{write.ref.kind} {write.ref.name}: {write.tree}")
        return write_to_store(self, write)

    monkeypatch.setattr(Actuator, "write", watched)
    for seed in range(12):
        run_seed(seed)
    assert idle == []
    assert [kind for kind in _WRITTEN if not made[kind]] == []
