"""The quiet way: a NodePool whose own budgets let Karpenter disrupt nothing needs no hold on its nodes.

Karpenter publishes an event for every node with do-not-disrupt, before it looks at budgets. With
`budgets: [{nodes: "0", reasons: [Empty, Drifted, Underutilized]}]` in the spec, which Karpenter reads, and Dovetail's
policy in the annotation, the hold says nothing that the budgets don't say. Sits in the model, for holds and effects.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from dovetail.model import names
from dovetail.model.objects import BudgetSpec, DisruptionSpec
from dovetail.model.policies.reasons import Reason

_OF_KARPENTER: Final = (Reason.EMPTY, Reason.DRIFTED, Reason.UNDERUTILIZED)
_OF_ANY_BUDGET: Final = ("nodes", "reasons")
_NONE: Final = ("0", "0%", 0)


def is_quiet(spec: DisruptionSpec, annotations: Mapping[str, str]) -> bool:
    """Return whether Karpenter may take nothing by the spec, while the annotation has budgets for Dovetail.

    Without budgets in the annotation, those of the spec are the pool's policy: closed for now, as in a freeze. When
    they open, the hold must stand already.
    """
    return "budgets" in annotations.get(names.POLICY_ANNOTATION, "") and _is_closed(spec)


def _is_closed(spec: DisruptionSpec) -> bool:
    """Return whether budgets that hold at all times allow no node for each of Karpenter's voluntary reasons."""
    closed: dict[object, None] = {}
    for budget in spec.budgets or ():
        is_limited = any(getattr(budget, part) for part in BudgetSpec.__struct_fields__ if part not in _OF_ANY_BUDGET)
        if is_limited or isinstance(budget.nodes, bool) or budget.nodes not in _NONE:
            continue
        if budget.reasons is None or budget.reasons == ():
            return True
        if isinstance(budget.reasons, tuple | list):
            closed |= dict.fromkeys(budget.reasons)
    return all(reason.value in closed for reason in _OF_KARPENTER)


def is_quiet_tree(pool: dict[str, object]) -> bool:
    """As above, for a NodePool as the API server has it; one that can't be read is held."""
    try:
        found = msgspec.convert(pool, _Pool, strict=False)
    except (msgspec.ValidationError, TypeError):
        return False
    return is_quiet(found.spec.disruption, found.metadata.annotations)


class _Meta(msgspec.Struct):
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct):
    disruption: DisruptionSpec = DisruptionSpec()


class _Pool(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
