"""The small questions with Karpenter's own answers."""

import gzip
import json
from typing import Any

import pytest

from tests.paths import ROOT


def units(*kinds: str) -> list[Any]:
    """Return the questions of some kinds as pytest parameters: question, answer."""
    cases = json.loads(gzip.decompress((ROOT / "tests/golden/data/units.json.gz").read_bytes()))
    return [
        pytest.param(case["question"], case["answer"], id=case["question"]["id"])
        for case in cases
        if case["question"]["kind"] in kinds
    ]
