"""A new policy field is an entry in a table and two declarations; the worked example of CONTRIBUTING.md."""

from pathlib import Path

import pytest

from dovetail.api.policy_fields import FIELDS, Field, docs_table
from dovetail.model.policies.policy import DisruptionPolicy
from tests.support.chart import script
from tests.support.worked_examples import run_example

_PLACES = (  # where each printed step goes: before this line
    ("api/policy_fields.py", '    Field(\n        name="health",\n'),
    ("model/parts/pools.py", "    health: HealthSpec | None = None\n"),
    ("model/policies/policy.py", "    health: Health | None = None\n"),
)
_CHECKS = """
import msgspec
from dovetail.api.crds.definitions import crds
from dovetail.api.findings import Severity
from dovetail.api.manifests.manifest_shapes import DISRUPTION
from dovetail.api.manifests.validate import disruption_findings
from dovetail.api.policy import effective_policy
from dovetail.api.policy_fields import docs_table
from dovetail.live.kubernetes.crd_check import judge_crd
from dovetail.model.names import POLICY_ANNOTATION
from dovetail.model.objects import DisruptionSpec, NodePool, NodePoolSpec, ObjectMeta
from dovetail.model.settings import DOVETAIL
from dovetail.model.timing.duration import DAY, HOUR

def policy(written, annotation=None):
    meta = ObjectMeta(annotations={} if annotation is None else {POLICY_ANNOTATION: annotation})
    spec = NodePoolSpec(disruption=msgspec.convert(written, DisruptionSpec))
    return effective_policy(NodePool(metadata=meta, spec=spec), DOVETAIL)

assert policy({}).min_ready_time is None
assert policy({"minReadyTime": "2h"}).min_ready_time == 2 * HOUR
both = policy({"minReadyTime": "2h"}, "minReadyTime: 1d")
assert (both.min_ready_time, both.origins["minReadyTime"], both.warnings) == (DAY, "annotation", ())
broken = policy({"minReadyTime": "soon"})
assert (broken.min_ready_time, broken.consolidate_after) == (None, None)
assert broken.problems == (
    'spec.disruption.minReadyTime ("soon"): has the wrong form; write a duration such as 30m, 2h or 1d; '
    "nothing is consolidated until it is mended",
)
assert not list(disruption_findings({"minReadyTime": "2h"}, "spec.disruption"))
for wrong in ("soon", 5, "9" * 30 + "h"):
    (finding, *_) = disruption_findings({"minReadyTime": wrong}, "spec.disruption")
    assert (finding.severity, finding.path) == (Severity.ERROR, "spec.disruption.minReadyTime"), finding

(pools,) = [crd for crd in crds() if crd["metadata"]["name"] == "nodepools.karpenter.sh"]
assert judge_crd(pools).missing == ()
fields = pools["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["disruption"][
    "properties"
]
assert list(fields) == list(DISRUPTION.fields)
schema = fields.pop("minReadyTime")
assert schema["description"] == "How long a node must have been Ready before it is consolidated."
assert schema["x-kubernetes-validations"][0]["message"].startswith("minReadyTime must be a duration")
assert judge_crd(pools).missing == ("minReadyTime",)
assert "| `minReadyTime` | `30m`, `2h`, `1d` | unset: off | [controls](operators-controls.md) |" in docs_table()
"""


def test_the_worked_example(tmp_path: Path) -> None:
    """With the three printed steps, parsing, validation, the CRD, its check and the docs know the field."""
    run_example("add a policy field", _PLACES, _CHECKS, tmp_path)


def test_the_table_in_the_docs_is_current() -> None:
    """The page is what tools/build_policy_docs.py writes."""
    builder = script("build_policy_docs")
    assert builder.PAGE.read_text() == builder.page(), "run: python tools/build_policy_docs.py"
    assert len(list(docs_table())) > len(FIELDS)


@pytest.mark.parametrize("field", [field for field in FIELDS if field.attribute], ids=lambda field: field.name)
def test_the_default_of_the_crd_is_the_default_of_the_policy(field: Field) -> None:
    """A pool without the CRD's defaults has the same policy as one that the API server filled in."""
    assert field.form is not None
    own = getattr(DisruptionPolicy(), field.attribute)
    assert own == (None if field.default is None else field.form.read(field.default))
