"""Requests of an idle controller: each kind is listed once, page by page, and then only watched."""

import asyncio
import gc

from tests.live.fake_server import until
from tests.live.test_malformed import Scene, _controller

_LEASES = "/leases"


async def _at_rest() -> Scene:
    """Run a controller until the watch of every kind has ended and reopened several times."""
    async with _controller(lambda _: None, pollInterval="1s") as scene:
        await until(lambda: scene.asked("/api/v1/pods", watch=True) >= 4 and scene.controller.why_unready() == "")
        return scene


def test_each_kind_is_listed_once_and_then_watched() -> None:
    """A closed watch resumes from its last bookmark and requests bookmarks; lists are paged, and sent once."""
    frozen = gc.get_freeze_count()
    requests = asyncio.run(_at_rest()).server.requests
    lists = [
        each for each in requests if each.method == "GET" and "watch" not in each.query and each.path.count("/") <= 5
    ]
    watches = [each for each in requests if "watch" in each.query]
    watched = {each.path for each in watches}
    lists = [each for each in requests if each.path in watched and "watch" not in each.query]
    assert len(lists) == len(watched) == len({each.path for each in lists})
    assert all(each.query.get("limit", "").isdigit() for each in lists)
    assert all(each.query.get("allowWatchBookmarks") == "true" for each in watches)
    of_pods = [each.query["resourceVersion"] for each in watches if each.path == "/api/v1/pods"]
    assert of_pods[0] == "5"
    assert set(of_pods[1:]) == {"6"}
    assert gc.get_freeze_count() > frozen


def test_nothing_is_written_where_nothing_is_to_do() -> None:
    """An idle controller writes only the Lease, and once what is on no object."""
    requests = asyncio.run(_at_rest()).server.requests
    writes = [each.path for each in requests if each.method != "GET" and _LEASES not in each.path]
    assert {path.rpartition("/")[2] for path in writes} <= {"dovetail-state"}
    assert len(writes) <= 1
