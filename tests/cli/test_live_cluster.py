"""Commands that read a live cluster pass it on and never convert it to text."""

import argparse
import json
from pathlib import Path

from dovetail.cli.live_cluster import with_client
from dovetail.live.kubernetes.client import ApiClient


class _Big:
    """Stands for a cluster whose repr would be as long as all its pods together."""

    asked = 0

    def __repr__(self) -> str:
        type(self).asked += 1
        return "big"


def test_what_was_read_is_not_put_into_words(tmp_path: Path) -> None:
    """The cluster is not returned through asyncio.run, which formats it in Python 3.11: 400 MB for 80,000 pods."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))

    async def work(_: ApiClient) -> _Big:
        return _Big()

    found = with_client(argparse.Namespace(kubeconfig=str(path), context=None), work)
    assert isinstance(found, _Big)
    assert _Big.asked == 0
