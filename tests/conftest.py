"""Fixtures that every test can use."""

import gc
from collections.abc import Iterator

import pytest

from tests.support.fixtures import (
    api_server,
    cluster,
    new_api_server,
    pytest_itemcollected,
    pytest_terminal_summary,
)

__all__ = [
    "an_ordinary_collector",
    "api_server",
    "cluster",
    "new_api_server",
    "pytest_itemcollected",
    "pytest_terminal_summary",
]


@pytest.fixture(autouse=True)
def an_ordinary_collector() -> Iterator[None]:
    """Unfreeze the objects that a command or controller froze: one test process runs many of them."""
    yield
    gc.unfreeze()
