"""One browser per module: started when a test first needs it, ended with the module."""

from collections.abc import Iterator

import pytest

from tests.browser import chromium


@pytest.fixture(scope="module", autouse=True)
def ended_browser() -> Iterator[None]:
    """End the browser after the last test of a module."""
    yield
    chromium.stop()
