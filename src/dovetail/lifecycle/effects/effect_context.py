"""What an effect depends on besides the instruction and the objects, and what all effects share.

References to objects, patches bound to the version that was read, whose record an object carries. Sits below the
modules of one kind of object each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.effects.writes import (
    PODS_ON,
    Done,
    Outcome,
    Patch,
    Read,
    Ref,
    Tree,
    Writes,
    annotation,
    listing,
    text,
)
from dovetail.model import names
from dovetail.model.objects import Pod

Known = Mapping[Ref, Tree | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectContext:
    """Everything an effect depends on besides the instruction and the objects.

    `identity` names this controller in events; `holds`: whether new NodeClaims are protected from Karpenter's own
    disruption; `looks_last`: whether a node's pods are judged once more before its deletion; `uid_of` returns the uid
    of an object by kind and name, or "". Records are sealed with `seal`; an unsealed one is ignored.
    """

    now: datetime
    seal: Seal
    identity: str = "dovetail"
    holds: bool = True
    looks_last: bool = True
    uid_of: Callable[[str, str], str] = lambda kind, name: ""


def about(ref: Ref, known: Known, decide: Callable[[Tree | None], Outcome]) -> Outcome:
    """Decide on an object that has been read, or ask for it."""
    return decide(known[ref]) if ref in known else Read(ref=ref)


def node_ref(name: str) -> Ref:
    """Return the reference of a Node."""
    return Ref(kind="Node", name=name)


def claim_ref(name: str) -> Ref:
    """Return the reference of a NodeClaim."""
    return Ref(kind="NodeClaim", name=name)


def pool_ref(name: str) -> Ref:
    """Return the reference of a NodePool."""
    return Ref(kind="NodePool", name=name)


def pod_ref(namespace: str, name: str) -> Ref:
    """Return the reference of a Pod."""
    return Ref(kind="Pod", name=name, namespace=namespace)


def pods_on(node: str, known: Known) -> Read | str | Sequence[Pod]:
    """Return the pods of a node as the server has them now; text: why they can't be read."""
    ref = Ref(kind=PODS_ON, name=node)
    if ref not in known:
        return Read(ref=ref)
    found = known[ref] or {"unreadable": f"the pods of {node} can't be read"}
    pods: Sequence[Pod] = found.get("pods", ())
    return text(found, "unreadable") or pods


def is_true_in(item: Tree, kind: str) -> bool:
    """Return whether a condition of an object is True."""
    return any(entry.get("type") == kind and entry.get("status") == "True" for entry in _conditions(item))


def _conditions(item: Tree) -> list[Tree]:
    return listing(item, "status", "conditions")


def patch_of(ref: Ref, item: Tree, tree: Tree, subresource: str = "") -> Patch:
    """Return the patch of an object, bound to the version that was read."""
    version = text(item, "metadata", "resourceVersion")
    return Patch(ref=ref, resource_version=version, tree=tree, subresource=subresource)


def patched(ref: Ref, item: Tree | None, change: Callable[[Tree], Tree | None]) -> Outcome:
    """Patch an object if it exists and needs it."""
    tree = None if item is None else change(item)
    return Done() if item is None or tree is None else Writes(writes=(patch_of(ref, item, tree),))


def holder_of(item: Tree, context: EffectContext) -> str:
    """Return the id of the command whose record an object carries; empty if there is no trusted one."""
    record = context.seal.opened(annotation(item, names.COMMAND) or "")
    return "" if isinstance(record, str) else record.id


def with_condition(item: Tree, wanted: Tree, context: EffectContext) -> Tree | None:
    """Return the patch that adds a condition to those of an object; None if it is already there."""
    conditions = _conditions(item)
    before = next((entry for entry in conditions if entry.get("type") == wanted["type"]), {})
    if all(before.get(key) == value for key, value in wanted.items()):
        return None
    since = before.get("lastTransitionTime") if before.get("status") == wanted["status"] else None
    stamped = {**wanted, "lastTransitionTime": since or timestamp(context.now)}
    others = [entry for entry in conditions if entry.get("type") != wanted["type"]]
    return {"status": {"conditions": [*others, stamped]}}


def timestamp(at: datetime) -> str:
    """Return a time as the API server writes it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
