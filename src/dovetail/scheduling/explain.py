"""Why a pod found no place: the constraint and the closest miss, in one sentence, made only when someone asks."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.model.objects import Pod
from dovetail.scheduling.engine import Engine, Entry

if TYPE_CHECKING:
    from dovetail.scheduling.snapshot import Snapshot


def explain_uninitialized(pod: Pod, node: str) -> Callable[[], str]:
    """A pod that would land on a node that has not started yet."""
    return lambda: f"{pod.metadata.namespace}/{pod.metadata.name} would land on {node}, which is not initialized yet"


def explain(snapshot: "Snapshot", engine: Engine, entry: Entry) -> Callable[[], str]:
    """A pod that no node and no pool takes."""
    return lambda: "no place"
