"""Check that the page on agreement with Karpenter's decisions is current."""

import pytest

from tests.golden.agreement import PAGE, page


@pytest.mark.slow
def test_the_page_is_current() -> None:
    """The page docs/internals/decision-agreement.md is what the script writes now."""
    assert PAGE.read_text() == page()
