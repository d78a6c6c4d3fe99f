"""What keeps a NodePool from launching nodes: everything invalid outside its disruption policy.

The API server and Karpenter's controller refuse a weight of 1000, a negative number of replicas or a requirement that
compares with a word; a file, or an object from an older CRD, may contain them all the same. Such a pool launches
nothing until it is corrected; its nodes and its policy keep working, and so does the rest of the cluster
(docs/rules.md#policy). The rules are those of `validate`, applied to the decoded object: it has every field, so nothing
is missed. `api.policy` checks the policy. Sits in api; pure; caches its results, as pools hardly ever change.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from dovetail.api.findings import Finding, Severity
from dovetail.api.manifests.controller_rules import controller_findings
from dovetail.api.manifests.manifest_shapes import NODE_POOL
from dovetail.api.manifests.shape import REQUIRED, check, child, error
from dovetail.api.manifests.validate import own_label_findings, static_findings
from dovetail.model.objects import NodePool
from dovetail.model.quantity import QuantityError, resource_amount

_SPEC: Final = NODE_POOL.fields["spec"]


def launch_problems(pool: NodePool) -> tuple[str, ...]:
    """Return everything that stops a pool from launching, each as `FIELD (VALUE): what is wrong; what to write`."""
    unread = tuple(text for path, text in pool.unread if not path.startswith("spec.disruption"))
    return (*unread, *_problems(msgspec.json.encode(pool.spec)))


@lru_cache(maxsize=1 << 13)
def _problems(written: bytes) -> tuple[str, ...]:
    spec: dict[str, Any] = msgspec.json.decode(written)
    spec.pop("disruption", None)
    for requirement in spec.get("template", {}).get("spec", {}).get("requirements", ()):
        requirement.setdefault("operator", "In")  # defaults are left out when an object is written
    errors: dict[str, str] = {}  # by field: the API server and the controller often refuse the same thing
    for finding in _findings(spec):
        if finding.severity is Severity.ERROR:
            errors.setdefault(finding.path, finding.sentence())
    return tuple(errors.values())


def _findings(spec: dict[str, Any]) -> Iterator[Finding]:
    shape = [finding for finding in check(_SPEC, spec, "spec") if finding.message != REQUIRED]
    yield from shape
    yield from static_findings(spec)
    template = spec.get("template", {})
    yield from controller_findings(template)
    yield from own_label_findings(template)
    said = {finding.path for finding in shape}
    for name, amount in spec.get("limits", {}).items():
        path = child("spec.limits", name)
        try:
            resource_amount(name, amount)
        except QuantityError as problem:
            if path not in said:
                yield error(path, amount, str(problem))
