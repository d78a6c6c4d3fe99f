"""Windows of budgets: Karpenter's answers, reproduced."""

from datetime import datetime
from typing import Any

import pytest

from dovetail.model.timing.cron import ScheduleError
from dovetail.model.timing.duration import parse_go_duration
from dovetail.model.timing.windows import window
from tests.support.golden_units import units


@pytest.mark.parametrize(("question", "answer"), units("budgetActive"))
def test_windows_are_open_when_karpenters_are(question: Any, answer: Any) -> None:
    """Open, closed or unreadable, at the edges and between; a schedule without a duration lasts no time."""
    budget, now = question["budget"], datetime.fromisoformat(question["now"])
    if answer["error"] is not None:
        with pytest.raises(ScheduleError):
            window(budget.get("schedule", ""), 0)
        return
    duration = parse_go_duration(budget.get("duration", "0s"))
    assert window(budget["schedule"], duration).active(now) is answer["active"]
