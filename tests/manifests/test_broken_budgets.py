"""A budget whose fields have the wrong type is broken by itself; pool and cluster go on (docs/rules.md#policy)."""

import pytest

from dovetail.api.policy import effective_policy
from dovetail.api.reading.decode import decode_item, decode_objects
from dovetail.model.objects import NodePool
from dovetail.model.policies.policy import Reason
from dovetail.model.settings import DOVETAIL

_POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: web}}
spec:
  disruption: {{budgets: [{budget}, {{nodes: "3"}}]}}
  template: {{spec: {{requirements: [], nodeClassRef: {{group: g, kind: k, name: c}}}}}}
"""


@pytest.mark.parametrize(
    ("budget", "reasons"),
    [
        ("{nodes: 5.5, reasons: [Empty]}", (Reason.EMPTY,)),
        ("{nodes: true, reasons: [Drifted]}", (Reason.DRIFTED,)),
        ('{nodes: "1", reasons: "Empty"}', None),
        ('{nodes: "1", sequential: "yes", reasons: [Expired]}', (Reason.EXPIRED,)),
        ('{nodes: "1", schedule: 5, duration: 1h, reasons: [Underutilized]}', (Reason.UNDERUTILIZED,)),
    ],
)
def test_a_wrong_type_breaks_one_budget(budget: str, reasons: tuple[Reason, ...] | None) -> None:
    """The broken budget is kept as broken for the reasons it names (all, where they can't be read), the other holds."""
    (pool,) = decode_objects(_POOL.format(budget=budget).encode()).objects
    assert isinstance(pool, NodePool)
    policy = effective_policy(pool, DOVETAIL)
    broken, sound = policy.budgets
    assert broken.problem is not None
    assert broken.reasons == reasons
    assert sound.problem is None


def test_a_null_budget_from_a_server_is_closed_too() -> None:
    """What a list of the API server holds is read as a file is: a null budget allows nothing, it is not left out."""
    pool = decode_item(b'{"metadata": {"name": "web"}, "spec": {"disruption": {"budgets": [null]}}}', "NodePool")
    assert isinstance(pool, NodePool)
    (budget,) = effective_policy(pool, DOVETAIL).budgets
    assert budget.problem is not None
