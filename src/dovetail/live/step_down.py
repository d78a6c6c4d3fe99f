"""Makes running controllers step down permanently: during an uninstall nothing may restore what is being removed.

The Lease is taken over under a special name for an hour. A leading controller sees that at its next renewal and stops
acting; one that can't reach the API server stops acting by its own clock, before the duration in its Lease is over.
After that time no writes of theirs can arrive. The chart's uninstall removes the Lease; if it stays, controllers may
lead again after the hour.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from dovetail.live.kubernetes.client import MERGE_PATCH, ApiClient, ApiError
from dovetail.live.kubernetes.lease import RELEASE_IDENTITY
from dovetail.live.kubernetes.resources import LEASE

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
    """Take the Lease over and wait until its holder has stopped writing. Return the holder, or ""."""
    path = LEASE.path(name, namespace)
    for attempt in range(1, _TRIES + 1):
        try:
            lease = msgspec.json.decode(await client.request("GET", path))
        except ApiError as error:
            if error.status == 404:
                return ""  # without a Lease nobody leads
            raise
        held = lease.get("spec") or {}
        holder = str(held.get("holderIdentity") or "")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": RELEASE_IDENTITY,
            "leaseDurationSeconds": _HELD_SECONDS,
            "renewTime": now,
            "acquireTime": now,
        }
        patch = {"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}, "spec": spec}
        try:
            await client.request("PATCH", path, body=msgspec.json.encode(patch), content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status != 409 or attempt == _TRIES:
                raise
            await pause(client.backoff(1, 0.5))  # its holder renewed in between
            continue
        if holder and holder != RELEASE_IDENTITY:
            lasts = held.get("leaseDurationSeconds")
            await pause(float(lasts) if isinstance(lasts, int) and 0 < lasts <= _HELD_SECONDS else _STEP_DOWN_SECONDS)
        return holder
    raise AssertionError("the loop returns or raises")
