"""Why a node is disrupted: the reasons that budgets, windows and commands name."""

from enum import StrEnum


class Reason(StrEnum):
    """Why a node is disrupted."""

    EMPTY = "Empty"
    EXPIRED = "Expired"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"
    UNHEALTHY = "Unhealthy"
