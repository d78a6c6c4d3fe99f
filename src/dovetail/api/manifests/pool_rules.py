"""What keeps a NodePool from launching: everything outside its disruption policy that would be refused.

The API server and Karpenter's controller refuse a weight of 1000, a negative number of replicas or a requirement that
compares with a word; a file, or an object from an older CRD, may hold them all the same. Such a pool launches nothing
until it is mended, its nodes and its policy stay what they are, and the rest of the cluster goes on (spec section 1).
The rules are those of `validate`, asked of the decoded object: what was left out and what was written as the default
can't be told apart there, so nothing is missed. The policy is `policy`'s business. Sits in api; pure; remembers what it
has read, as pools hardly ever change.
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
    """Return everything for which a pool launches nothing, each as `FIELD (VALUE): what is wrong; what to write`."""
    unread = tuple(text for path, text in pool.unread if not path.startswith("spec.disruption"))
    return (*unread, *_problems(msgspec.json.encode(pool.spec)))


@lru_cache(maxsize=1 << 13)
def _problems(written: bytes) -> tuple[str, ...]:
    spec: dict[str, Any] = msgspec.json.decode(written)
    spec.pop("disruption", None)
    for requirement in spec.get("template", {}).get("spec", {}).get("requirements", ()):
        requirement.setdefault("operator", "In")  # defaults are left out when an object is written
    errors: dict[str, str] = {}  # by field: the API server and the controller refuse many things, each in its words
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
