"""What commands reserve, followed from question to question, is what a new reader finds."""

from dataclasses import replace
from datetime import timedelta
from operator import itemgetter

from hypothesis import given
from hypothesis import strategies as st

from dovetail.lifecycle.commands import flight
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.store import Store
from dovetail.model.command import Action, Command, Method, Placement, Replacement
from tests.support.command_cases import claim, run
from tests.support.conversation import pod
from tests.support.nodes import NOW

NODES = ("a", "b", "c")
PHASES = (Phase.VALIDATING, Phase.TAINTING, Phase.LAUNCHING, Phase.WAITING, Phase.DRAINING, Phase.ROLLING_BACK)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "gone", "claim", "launched", "phase", "command", "again", "start", "end", "nothing"]),
        st.sampled_from(NODES),
        st.integers(0, 3),
    ),
    max_size=14,
)


def _command(node: str, number: int) -> Command:
    """Return a command for a node; the number tells its destinations and whether it launches."""
    places = tuple(Placement(node=f"dest{at}", pods=(f"d/{node}-{at}",)) for at in range(number))
    launched = (Replacement(node_pool="web", instance_types=("m",), pods=(f"d/{node}-0",)),)
    return Command(
        action=Action.REPLACE_COST,
        method=Method.SINGLE_NODE,
        nodes=(node,),
        replacements=launched if number % 2 else (),
        placements=places,
    )


def _run(node: str, number: int) -> Run:
    names = (f"new-{node}",) if number % 2 else ()
    return run(node, id=f"command-{node}", replacements=names, command=_command(node, number))


@given(_STEPS)
def test_what_is_reserved_follows_the_commands(steps: list[tuple[str, str, int]]) -> None:
    """After any change of commands and objects, plans and targets are those of a new reader."""
    store, runs = Store(), {node: _run(node, 1) for node in NODES[:2]}
    plans, targets = flight.Plans(), flight.Targets()
    for version, (what, node, number) in enumerate(steps, start=1):
        known = runs.get(node)
        if what == "pod":
            store.observe(pod(f"{node}-{number}", node, uid=f"pod-{version}"))
        elif what == "gone":
            store.vanish("Pod", "d", f"{node}-{number}")
        elif what in ("claim", "launched"):
            store.observe(claim(f"new-{node}", provider="p" if what == "launched" else "", on=""))
        elif what == "start":
            runs[node] = _run(node, number)
        elif what == "end":
            runs.pop(node, None)
        elif known is not None and what == "phase":
            known.phase = PHASES[number]
        elif known is not None and what == "command":
            known.command = _command(node, number)
            known.replacements = (f"new-{node}",) if number % 2 else ()
            known.candidates, known.began = run(node, f"{node}{number}").candidates, NOW + timedelta(seconds=version)
        elif known is not None and what == "again":
            runs[f"{node}-again"] = replace(known, command=_command(node, number + 2 * (number < 2)))
            runs[f"{node}-again"].replacements = (f"new-{node}",) if number % 2 else ()
        for some in (list(runs.values()), list(runs.values())[1:], list(runs.values())):
            assert plans.under_way(some, store) == flight.Plans().under_way(some, store)
            assert targets.of(some) == {name for one in some for name in (*one.replacements, *one.destinations)}
            gone = [(node, one.id, one.began, one.method) for one in some for node in one.nodes]
            left = flight.leaving(some)
            assert [(entry.node, entry.command_id, entry.since, entry.method) for entry in left] == sorted(
                gone, key=itemgetter(0, 1)
            )
