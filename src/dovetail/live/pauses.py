"""`dovetail pause` and `dovetail resume`: set and remove the annotations on NodePools that stop new commands.

See docs/rules.md#pause. Needs no running controller. Resuming also ends a halt that a pool placed on itself
(docs/rules.md#health).
"""

from collections.abc import Sequence
from typing import Any, Final

from dovetail.live.holds import HoldTally, apply_change, check_pools, listed_items
from dovetail.live.kubernetes.client import ApiClient
from dovetail.live.kubernetes.resources import BY_KIND
from dovetail.model.names import HALTED, PAUSED, PAUSED_REASON

_POOL: Final = BY_KIND["NodePool"]
Annotations = dict[str, str | None]


async def pause(client: ApiClient, pools: Sequence[str] | None, until: str, reason: str) -> HoldTally:
    """Pause pools, all for None, with "true" or a time as the end."""
    return await _annotate(client, pools, {PAUSED: until, PAUSED_REASON: reason or None})


async def resume(client: ApiClient, pools: Sequence[str] | None) -> HoldTally:
    """Resume pools; None: all."""
    return await _annotate(client, pools, dict.fromkeys((PAUSED, PAUSED_REASON, HALTED), None))


async def _annotate(client: ApiClient, pools: Sequence[str] | None, wanted: Annotations) -> HoldTally:
    if pools is not None:
        await check_pools(client, pools)
    tally = HoldTally()
    for item in await listed_items(client, _POOL):
        if pools is None or item["metadata"]["name"] in pools:
            await apply_change(client, _POOL, item, lambda tree: _change(tree, wanted), tally)
    return tally


def _change(item: dict[str, Any], wanted: Annotations) -> dict[str, Any] | None:
    present = item["metadata"].get("annotations") or {}
    change = {key: value for key, value in wanted.items() if present.get(key) != value}
    return {"metadata": {"annotations": change}} if change else None
