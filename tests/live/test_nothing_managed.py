"""A controller without managed pools reports that; one that observes evaluates every pool."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from tests.live.fake_server import until
from tests.live.test_supervision import calm, controlled


@pytest.mark.parametrize("labelled", [True, False])
def test_starting_with_nothing_to_manage_warns(labelled: bool) -> None:
    """The log lists the managed pools, or warns that there are none and what to do."""
    pool: dict[str, Any] = {"metadata": {"name": "web", "resourceVersion": "1", "uid": "u"}, "spec": {"template": {}}}
    if labelled:
        pool["metadata"]["labels"] = {"dovetail.dev/manage": "true"}

    def answer(request: web.Request, number: int) -> Any:
        if request.path.endswith("/nodepools") and "watch" not in request.query:
            return {"metadata": {"resourceVersion": "1"}, "items": [pool]}
        return calm(request, number)

    async def context() -> None:
        async with controlled(answer) as scene:
            wanted = "managing NodePools" if labelled else "no NodePool is managed"
            await until(lambda: wanted in scene.log.getvalue())
            lines = [json.loads(line) for line in scene.log.getvalue().splitlines()]
            (line,) = [line for line in lines if wanted in line["message"]]
            assert line["level"] == ("info" if labelled else "warning")

    asyncio.run(context())
