"""Resource lists as plain integers, added, subtracted and compared name by name."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.model.quantity import resource_amount

Resources = dict[str, int]


def amounts(quantities: Mapping[str, str | int | float]) -> Resources:
    """Return a resource list as integers."""
    return {name: resource_amount(name, quantity) for name, quantity in quantities.items()}


def add(one: Resources, other: Resources) -> Resources:
    """Return the sum, over the names of both."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def subtract(one: Resources, other: Resources) -> Resources:
    """Return the difference, over the names of the first only."""
    return {name: amount - other.get(name, 0) for name, amount in one.items()}


def largest(one: Resources, other: Resources) -> Resources:
    """Return the larger of each, over the names of both."""
    return {
        name: max(one.get(name, other.get(name, 0)), other.get(name, one.get(name, 0))) for name in {**one, **other}
    }


def fits(wanted: Resources, free: Resources) -> bool:
    """Return whether all that is wanted is free, and nothing is overdrawn already, wanted or not."""
    if any(amount < 0 for amount in free.values()):
        return False
    return all(amount <= free.get(name, 0) for name, amount in wanted.items())
