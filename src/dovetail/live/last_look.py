"""Reads a node's pods from the server right before its NodeClaim is deleted; without that answer nothing is deleted."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dovetail.api.conservative import conservative, unreadable_pod
from dovetail.api.decode import decode_item
from dovetail.lifecycle.commands.last_look import objection
from dovetail.lifecycle.messages import DeleteNodeClaim, Failure, InstructionFailed
from dovetail.live.client import UNREADABLE, ApiClient, ApiError
from dovetail.live.credentials import UnreachableError
from dovetail.live.resources import BY_KIND
from dovetail.model.objects import Pod

_PODS: Final = BY_KIND["Pod"]


@dataclass(slots=True, kw_only=True)
class LastLook:
    """Asks the server, not the view: a list without a resource version is answered from the store itself."""

    client: ApiClient
    clock: Callable[[], datetime]

    async def before(self, order: DeleteNodeClaim) -> InstructionFailed | None:
        """Return why the deletion must not be sent; None where it may be."""
        if not order.node:
            return None
        try:
            why = await self._objection(order)
        except ApiError as error:
            failure = Failure.FORBIDDEN if error.status == 403 else Failure.UNREACHABLE
            return InstructionFailed(id=order.id, failure=failure, detail=f"the pods of {order.node}: {error}")
        except UnreachableError as error:
            detail = f"the pods of {order.node} can't be read: {error}"
            return InstructionFailed(id=order.id, failure=Failure.UNREACHABLE, detail=detail)
        return InstructionFailed(id=order.id, failure=Failure.OCCUPIED, detail=why) if why else None

    async def _objection(self, order: DeleteNodeClaim) -> str:
        pods: list[Pod] = []
        listing = await self.client.list_all(_PODS.path(), {"fieldSelector": f"spec.nodeName={order.node}"})
        for raw in listing.items:
            try:
                pod, _ = conservative(decode_item(raw, "Pod"))
            except UNREADABLE:
                stand_in = unreadable_pod(raw)
                if stand_in is None:
                    return f"a pod on node {order.node} can't be read"
                pod = stand_in
            assert isinstance(pod, Pod)
            pods.append(pod)
        return objection(order, pods, self.clock())
