"""Names that people type: `node/NAME` and `NAME`, and the most similar one if there is no such name."""

from collections.abc import Collection

from dovetail.api.findings import InputError, one_line
from dovetail.model.text import nearest

_PREFIXES = ("node/", "nodes/", "no/", "nodepool/", "nodepools/", "nodepools.karpenter.sh/", "nodepool.karpenter.sh/")


def bare_name(word: str) -> str:
    """Return the name without kubectl's kind in front."""
    return next((word[len(prefix) :] for prefix in _PREFIXES if word.lower().startswith(prefix)), word)


def one_of(word: str, known: Collection[str], what: str) -> str:
    """Return the name if it is known; raise with the nearest one if it is not."""
    name = bare_name(word)
    if name in known:
        return name
    ordered = sorted(known)
    near = nearest(name, ordered)
    if near:
        hint = f"did you mean {near}?"
    elif ordered:
        hint = f"name one of the {len(ordered)} that are there, such as {ordered[0]}"
    else:
        hint = f"the input has no {what}"
    raise InputError(f'there is no {what} "{one_line(name)}"; {hint}')
