"""Change the simulated scheduler's table of nodes at random, so that what it keeps can be compared with a recount."""

from collections.abc import Callable, Sequence
from random import Random

from dovetail.model.objects import Node
from dovetail.sim.world.placement.nodetable import NodeTable
from dovetail.sim.world.placement.shapes import PodShape


def change(
    table: NodeTable, step: int, dice: Random, node: Callable[[str, Random], Node], shapes: Sequence[PodShape]
) -> None:
    """Bind, end or release a pod; or add, change or remove a node."""
    what, nodes = dice.random(), sorted(table.rows)
    if what < 0.13 or len(nodes) < 3:
        table.set_node(node(f"n{step}", dice))
    elif what < 0.25:
        table.set_node(node(dice.choice(nodes), dice))
    elif what < 0.7:
        table.bind(f"pod-{step}", dice.choice(shapes), table.rows[dice.choice(nodes)])
    elif what < 0.8 and table.pods:
        table.terminating(dice.choice(sorted(table.pods)))
    elif what < 0.95 and table.pods:
        table.release(dice.choice(sorted(table.pods)))
    else:
        gone = dice.choice(nodes)
        for key in [key for key, entry in table.pods.items() if entry.row == table.rows[gone]]:
            table.release(key)
        table.drop_node(gone)
