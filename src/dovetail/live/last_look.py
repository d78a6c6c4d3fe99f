"""Reads a node's pods from the server right before its NodeClaim is deleted; without a response nothing is deleted."""

from typing import Final

from dovetail.api.reading.conservative import conservative, unreadable_pod
from dovetail.api.reading.decode import decode_item
from dovetail.lifecycle.effects.writes import Tree
from dovetail.live.kubernetes.client import UNREADABLE, ApiClient, ApiError
from dovetail.live.kubernetes.credentials import UnreachableError
from dovetail.live.kubernetes.resources import BY_KIND
from dovetail.model.objects import Pod

_PODS: Final = BY_KIND["Pod"]


async def read_pods_on(client: ApiClient, node: str) -> Tree:
    """Return the pods bound to a node as an effect wants them (`PODS_ON`).

    Asks the server, not the view: a list without a resource version is answered from the store itself.
    """
    try:
        listing = await client.list_all(_PODS.path(), {"fieldSelector": f"spec.nodeName={node}"})
    except ApiError as error:
        if error.status == 403:
            raise
        raise UnreachableError(f"the pods of {node} can't be read: {error}") from None
    pods: list[Pod] = []
    for raw in listing.items:
        try:
            pod, _ = conservative(decode_item(raw, "Pod"))
        except UNREADABLE:
            stand_in = unreadable_pod(raw)
            if stand_in is None:
                return {"unreadable": f"a pod on node {node} can't be read"}
            pod = stand_in
        assert isinstance(pod, Pod)
        pods.append(pod)
    return {"pods": tuple(pods)}
