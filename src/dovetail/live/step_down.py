"""Makes running controllers step down for good: before uninstalling, nobody may put back what is being taken away.

The Lease is taken over under a name of our own and for an hour. A controller that leads sees that at its next renewal
and acts no more; one that can't reach the API server stops acting by its own clock, before the time is over that it
wrote into the Lease. After that time nothing of theirs can come any more.
The Lease goes with the chart; where it stays, controllers may lead again after the hour.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from dovetail.live.kubernetes.client import MERGE_PATCH, ApiClient, ApiError
from dovetail.live.kubernetes.resources import LEASE

IDENTITY: Final = "dovetail-release"
_HELD_SECONDS: Final = 3600
_TRIES: Final = 20
_STEP_DOWN_SECONDS: Final = 30.0
"""How long a leader may act without an answer if its Lease doesn't say (`live.kubernetes.lease`)."""


async def stop_controllers(
    client: ApiClient,
    namespace: str,
    name: str,
    *,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> str:
    """Take the Lease over and wait until its holder's writes are over. Gives who held it, nothing where nobody did."""
    path = LEASE.path(name, namespace)
    for attempt in range(1, _TRIES + 1):
        try:
            lease = msgspec.json.decode(await client.request("GET", path))
        except ApiError as error:
            if error.status == 404:
                return ""  # without a Lease nobody leads, and nobody who may not create one ever will
            raise
        held = lease.get("spec") or {}
        holder = str(held.get("holderIdentity") or "")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": IDENTITY, "leaseDurationSeconds": _HELD_SECONDS, "renewTime": now, "acquireTime": now}
        patch = {"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}, "spec": spec}
        try:
            await client.request("PATCH", path, body=msgspec.json.encode(patch), content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status != 409 or attempt == _TRIES:
                raise
            await pause(client.backoff(1, 0.5))  # its holder renewed in between
            continue
        if holder and holder != IDENTITY:
            lasts = held.get("leaseDurationSeconds")
            await pause(float(lasts) if isinstance(lasts, int) and 0 < lasts <= _HELD_SECONDS else _STEP_DOWN_SECONDS)
        return holder
    raise AssertionError("the loop returns or raises")
