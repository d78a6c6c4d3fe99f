"""Fixtures that every test can use, how Hypothesis makes its examples, and what a test run must not inherit.

The same examples each time, without a time limit; the profile `search` tries more.
"""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.fixtures import (
    api_server,
    cluster,
    new_api_server,
    pytest_itemcollected,
    pytest_terminal_summary,
)
from tests.support.process_state import reset_environment, reset_signals

__all__ = [
    "an_ordinary_collector",
    "api_server",
    "cluster",
    "new_api_server",
    "pytest_itemcollected",
    "pytest_terminal_summary",
]


reset_signals()
reset_environment()
settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.register_profile("search", deadline=None, max_examples=2000, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture(autouse=True)
def an_ordinary_collector() -> Iterator[None]:
    """Unfreeze the objects that a command or controller froze: one test process runs many of them."""
    yield
    gc.unfreeze()
