"""What every test can ask for."""

from tests.support.fixtures import (
    api_server,
    cluster,
    new_api_server,
    pytest_itemcollected,
    pytest_terminal_summary,
)

__all__ = ["api_server", "cluster", "new_api_server", "pytest_itemcollected", "pytest_terminal_summary"]
