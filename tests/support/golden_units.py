"""The small questions with Karpenter's own answers."""

import gzip
import json
from functools import cache
from typing import Any

import pytest

from tests.paths import ROOT


@cache
def _all() -> list[Any]:
    return json.loads(gzip.decompress((ROOT / "tests/golden/data/units.json.gz").read_bytes()))  # type: ignore[no-any-return]


def units(*kinds: str) -> list[Any]:
    """Return the questions of some kinds as pytest parameters: question, answer."""
    return [
        pytest.param(case["question"], case["answer"], id=case["question"]["id"])
        for case in _all()
        if case["question"]["kind"] in kinds
    ]
