"""The RESULT of several seeds: means, with the standard error of the bill and of the restarts beside them. Pure."""

from collections.abc import Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Any

from dovetail.sim.ledger import Result

_DOLLAR = 10**18


def standard_error(values: Sequence[float]) -> float | None:
    """Return by how much chance moves the mean of these; None for one value, which does not say."""
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else None


def mean_result(results: Sequence[Result]) -> dict[str, Any]:
    """Return the mean of one policy's results over the seeds, in the form of RESULT, with `scatter`."""
    documents = [result.to_dict() for result in results]
    costs = [result.cost / _DOLLAR for result in results]
    restarts = [float(result.pods_disrupted) for result in results]
    found = {key: _mean([document[key] for document in documents]) for key in documents[0]}
    kinds = sorted({kind for document in documents for kind in document["actions"]})
    found |= {
        "actions": {kind: _mean([document["actions"].get(kind, 0) for document in documents]) for kind in kinds},
        "cost": f"{mean(costs):.4f}",
        "violations": [entry for document in documents for entry in document["violations"]],
        "podsDisruptedMost": max(document["podsDisruptedMost"] for document in documents),
        "scatter": {"cost": _rounded(standard_error(costs), 4), "podsDisrupted": _rounded(standard_error(restarts), 2)},
    }
    return found


def _mean(values: Sequence[Any]) -> Any:
    """Return the mean of figures, whole where it is whole; what is no figure is that of the first."""
    known = [value for value in values if isinstance(value, int | float)]
    if len(known) < len(values) and not known:
        return values[0]
    found = mean(known)
    return int(found) if found == int(found) and all(isinstance(value, int) for value in known) else round(found, 3)


def _rounded(value: float | None, places: int) -> float | None:
    return None if value is None else round(value, places)
