"""A new kind of budget is an entry in a table, two declarations and what it allows; the example of CONTRIBUTING.md."""

from copy import deepcopy
from pathlib import Path

from dovetail.api.crds.definitions import crds
from dovetail.live.kubernetes.crd_check import judge_crd
from tests.support.worked_examples import run_example

_PLACES = (  # where each printed step goes: before this line
    ("api/policy_fields.py", ')\n"""Parts of a budget with one value'),
    ("model/parts/pools.py", "\n\nclass WindowSpec("),
    ("model/policies/policy.py", "\n\nclass RestartPrice("),
    ("decide/gates/budgets.py", "    return -(-budget.amount * nodes // 100) if budget.is_percent"),
)
_CHECKS = """
import msgspec
from dovetail.api.crds.definitions import crds
from dovetail.api.findings import Severity
from dovetail.api.manifests.budget_rules import budget_findings
from dovetail.api.policy import effective_policy
from dovetail.api.policy_fields import docs_table
from dovetail.decide.gates.budgets import amount_of
from dovetail.live.kubernetes.crd_check import judge_crd
from dovetail.model.names import POLICY_ANNOTATION
from dovetail.model.objects import DisruptionSpec, NodePool, NodePoolSpec, ObjectMeta
from dovetail.model.policies.quiet import is_quiet
from dovetail.model.settings import DOVETAIL

def budget(**written):
    spec = NodePoolSpec(disruption=msgspec.convert({"budgets": [written]}, DisruptionSpec))
    (found,) = effective_policy(NodePool(metadata=ObjectMeta(), spec=spec), DOVETAIL).budgets
    return found

assert amount_of(budget(nodes="10%"), 100) == 10
assert amount_of(budget(nodes="10%", most="5"), 100) == 5
assert amount_of(budget(nodes="10%", most="5"), 20) == 2
broken = budget(nodes="10%", most="many")
assert amount_of(broken, 100) == 0
assert 'write a count such as "5"' in broken.problem
assert not list(budget_findings({"nodes": "10%", "most": "5"}, "b"))
for wrong in ("many", 5, "1234567"):
    (finding,) = budget_findings({"nodes": "10%", "most": wrong}, "b")
    assert (finding.severity, finding.path) == (Severity.ERROR, "b.most"), finding

ours = {POLICY_ANNOTATION: "budgets: []"}
closed = {"nodes": "0"}
assert is_quiet(msgspec.convert({"budgets": [closed]}, DisruptionSpec), ours)
assert not is_quiet(msgspec.convert({"budgets": [closed | {"most": "5"}]}, DisruptionSpec), ours)

(pools,) = [crd for crd in crds() if crd["metadata"]["name"] == "nodepools.karpenter.sh"]
assert judge_crd(pools).missing == ()
fields = pools["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["disruption"][
    "properties"
]["budgets"]["items"]["properties"]
schema = fields.pop("most")
assert schema["x-kubernetes-validations"][0]["message"] == "most must be a count such as '5'"
assert judge_crd(pools).missing == ("budgets.most",)
assert "| `budgets[].most` | a count | unset: off | [controls](operators-controls.md) |" in docs_table()
"""


def test_the_worked_example(tmp_path: Path) -> None:
    """With the four printed steps it is read, checked, in the CRD and the docs, and holds nodes back."""
    run_example("add a kind of budget", _PLACES, _CHECKS, tmp_path)


def test_a_crd_without_a_part_is_noticed() -> None:
    """Every part of a budget that only Dovetail has is missed where the server's CRD lacks it, `per` too."""
    [pools] = [deepcopy(crd) for crd in crds() if crd["metadata"]["name"] == "nodepools.karpenter.sh"]
    spec = pools["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    budget = spec["disruption"]["properties"]["budgets"]["items"]["properties"]
    for part in ("topologyKey", "sequential", "per"):
        del budget[part]
    assert judge_crd(pools).missing == ("budgets.topologyKey", "budgets.sequential", "budgets.per")
