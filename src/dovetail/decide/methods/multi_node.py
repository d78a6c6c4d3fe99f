"""Save money with several nodes at once: the largest prefix of the ordered candidates that passes as one command.

See docs/rules.md#methods; savings-threshold, Multi-node consolidation (costs of all nodes add up). Found by bisection,
as Karpenter does. Because a larger batch can pass where a smaller one does not, the profile `dovetail` tries all first
and also some batches beyond the bisection's result, so it never finds less. Sits in decide, beside the other methods,
which it does not know.
"""

from collections.abc import Callable, Sequence
from functools import partial

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.methods.method import MethodRun, OutOfBudget, take_within
from dovetail.decide.methods.moves import Move, command_of, cost_move, score
from dovetail.decide.refusal import Refusal
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model.command import Method
from dovetail.scheduling.pods.surge import NO_SURGES

METHOD = Method.MULTI_NODE
FURTHER_MAX = 6
"""How many larger batches are tried after the bisection, at most."""
FURTHER_PODS_MAX = 1000
"""How many pods those tries may place together: looking further has to be cheap."""

Try = Callable[[int], Move | Refusal]


def candidates(scene: Scene) -> tuple[NodeFacts, ...]:
    """Return the cost candidates in the order in which they are added."""
    return scene.cost_order


def run(work: Work) -> MethodRun:
    """Return the command for the largest batch that passes, if there is one of at least two nodes."""
    # a node that needs a rolling update is handled alone
    scene = work.scene
    together: Sequence[NodeFacts] = scene.cost_sources
    if scene.snapshot.surges is not NO_SURGES:
        together = [facts for facts in together if not facts.surges]
    left = scene.left(METHOD)
    taken, waiting = take_within(together, left)
    held = OutOfBudget(scene, METHOD, waiting, [pool for pool in left if waiting and left[pool] <= 0])
    asked: dict[int, Move | Refusal] = {}
    attempt = partial(_attempt, work, taken, asked)
    largest = min(len(taken), scene.settings.batch_maximum)
    if scene.settings.rules.bisects_only:
        best = bisect(attempt, largest)
    else:
        best = search(attempt, largest, asked, [len(facts.reschedulable) for facts in taken])
    move = asked.get(best)
    commands = (command_of(scene, METHOD, move),) if isinstance(move, Move) else ()
    refused = tuple(
        (tuple(taken[:size]), outcome) for size, outcome in sorted(asked.items()) if isinstance(outcome, Refusal)
    )
    return MethodRun(method=METHOD, commands=commands, held=held, refused=refused)


def _attempt(work: Work, taken: Sequence[NodeFacts], asked: dict[int, Move | Refusal], size: int) -> Move | Refusal:
    """Judge the first `size` nodes as one command; asked once."""
    if size not in asked:
        outcome = cost_move(work, taken[:size])
        refusal = score(work, outcome) if isinstance(outcome, Move) else None
        asked[size] = refusal or outcome
    return asked[size]


def bisect(attempt: Try, largest: int) -> int:
    """Return the size of the batch that bisection ends at, from 2 to `largest`; 0 if none passed."""
    best, low, high = 0, 1, largest - 1
    while low <= high:
        middle = (low + high) // 2
        if isinstance(attempt(middle + 1), Move):
            best, low = middle + 1, middle + 1
        else:
            high = middle - 1
    return best


def search(attempt: Try, largest: int, asked: dict[int, Move | Refusal], pods: Sequence[int]) -> int:
    """Return the size of the best batch: all of it if that passes, else by bisection and some larger sizes."""
    if largest < 2:
        return 0
    if isinstance(attempt(largest), Move):
        return largest
    return look_further(attempt, bisect(attempt, largest), largest, asked, pods)


def look_further(attempt: Try, best: int, largest: int, asked: dict[int, Move | Refusal], pods: Sequence[int]) -> int:
    """Try some larger batches that bisection skipped, largest first; return the best size found."""
    least = max(best + 1, 2)
    untried = [size for size in range(largest, least - 1, -1) if size not in asked]
    if len(untried) > FURTHER_MAX:
        step = (len(untried) - 1) / (FURTHER_MAX - 1)
        untried = [untried[round(index * step)] for index in range(FURTHER_MAX)]
    spent = 0
    for size in untried:
        if spent + sum(pods[:size]) > FURTHER_PODS_MAX:
            continue  # too expensive; a smaller batch may still pass
        spent += sum(pods[:size])
        if isinstance(attempt(size), Move):
            return size
    return best
