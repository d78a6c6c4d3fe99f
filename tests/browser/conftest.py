"""One browser per module: it starts when a test first needs it and closes at the end of the module."""

from collections.abc import Iterator

import pytest

from tests.browser import chromium


@pytest.fixture(scope="module", autouse=True)
def ended_browser() -> Iterator[None]:
    """Close the browser after the last test of a module."""
    yield
    chromium.stop()
