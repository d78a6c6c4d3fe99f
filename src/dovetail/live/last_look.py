"""Reads pods and PDBs from the server right before something irreversible; without a response nothing is deleted."""

from collections.abc import Sequence
from typing import Final

import msgspec

from dovetail.api.reading.admitted import Shared, admit
from dovetail.api.reading.conservative import unreadable_pod
from dovetail.lifecycle.effects.writes import Tree
from dovetail.live.kubernetes.client import UNREADABLE, ApiClient, ApiError
from dovetail.live.kubernetes.credentials import UnreachableError
from dovetail.live.kubernetes.resources import BY_KIND
from dovetail.model.objects import Pod, PodDisruptionBudget

_PODS: Final = BY_KIND["Pod"]
_PDBS: Final = BY_KIND["PodDisruptionBudget"]


async def read_pods_on(client: ApiClient, node: str) -> Tree:
    """Return the pods bound to a node as an effect wants them (`PODS_ON`).

    Asks the server, not the view: a list without a resource version is answered from the store itself.
    """
    pods: list[Pod] = []
    shared = Shared()
    for raw in await _list(client, _PODS.path(), f"the pods of {node}", {"fieldSelector": f"spec.nodeName={node}"}):
        try:
            pod, _ = admit(raw, "Pod", shared)
        except UNREADABLE:
            stand_in = unreadable_pod(raw)
            if stand_in is None:
                return {"unreadable": f"a pod on node {node} can't be read"}
            pod = stand_in
        assert isinstance(pod, Pod)
        pods.append(pod)
    return {"pods": tuple(pods)}


async def read_pdbs(client: ApiClient) -> Tree:
    """Return all PodDisruptionBudgets as an effect wants them (`PDBS`).

    One that can't be read is left out, as in the view; the eviction API still asks it.
    """
    found: list[PodDisruptionBudget] = []
    shared = Shared()
    for raw in await _list(client, _PDBS.path(), "the PodDisruptionBudgets", {}):
        try:
            item, _ = admit(raw, "PodDisruptionBudget", shared)
        except UNREADABLE:
            continue
        assert isinstance(item, PodDisruptionBudget)
        found.append(item)
    return {"pdbs": tuple(found)}


async def _list(client: ApiClient, path: str, what: str, query: dict[str, str]) -> Sequence[msgspec.Raw]:
    try:
        return (await client.list_all(path, query)).items
    except ApiError as error:
        if error.status == 403:
            raise
        raise UnreachableError(f"{what} can't be read: {error}") from None
