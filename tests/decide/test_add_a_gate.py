"""A new gate is a rule and its places in two lists; the worked example of CONTRIBUTING.md."""

import subprocess
import sys

_EXAMPLE = """
from dovetail.decide.gates import candidates
from dovetail.decide.gates.gate_results import GateContext, rule, said
from dovetail.model.command import Method
from dovetail.model.settings import DOVETAIL
from dovetail.model.timing.duration import HOUR, later
from dovetail.model.objects import NodeClaim, ObjectMeta
from dovetail.model.verdicts import Gate
from tests.support.nodes import NOW, facts_of, minutes

def until(facts, _):
    return later(facts.created, HOUR) if facts.created and "batch" in facts.labels else None

@rule(Gate.WINDOW, until, "It is not a young batch node.")
def no_young_batch(facts, gate_context):
    return said("It runs batches and is younger than an hour.")

candidates.OWN_RULES[Method.EMPTY] += (no_young_batch,)
candidates.RULES += (no_young_batch,)

from dovetail.decide.gates.table import GateTable
from dovetail.decide.gates.open_gates import OpenGates

claim = NodeClaim(metadata=ObjectMeta(creation_timestamp=NOW))
nodes = [facts_of(name=name, labels=labels, claim=claim) for name, labels in (("a", {"batch": ""}), ("b", {}))]
for minute, passing in ((0, "b"), (59, "b"), (60, "ab")):
    gates = GateContext(settings=DOVETAIL, now=NOW + minutes(minute))
    table = GateTable().renewed(nodes, gates)
    opened = OpenGates(table, gates, dict)
    assert "".join(facts.name for facts in opened.of(Method.EMPTY)) == passing, minute
    assert dict(opened.ends()[0])[Method.EMPTY] == (None if minute == 60 else Gate.WINDOW)
    chain = candidates.chain_of(nodes[0], gates, Method.EMPTY, opened.closed_for("a"))
    assert chain.open is (minute == 60)
    assert table.next_change(gates.now) == (None if minute == 60 else NOW + minutes(60))
"""


def test_the_worked_example() -> None:
    """A rule in two lists closes its gate, opens it again by time, and sets the time of the next change."""
    done = subprocess.run([sys.executable, "-c", _EXAMPLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
