"""Fixtures that tests of commands share."""

import pytest


@pytest.fixture
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short simulations run in this process: starting worker processes takes longer than they do.

    `tests/sim/test_workers.py`, the demo and the JSON of `simulate` use real workers.
    """
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
