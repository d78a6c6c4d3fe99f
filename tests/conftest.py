"""What every test can ask for."""

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
    """Give back what a command or a controller keeps from the garbage collector: a test process has many lives."""
    yield
    gc.unfreeze()
