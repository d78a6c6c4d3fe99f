"""`cached`: a property that is computed on first access and then stored on the object.

Like `functools.cached_property`, but without the lock that it takes on every first access before Python 3.12; a round
makes some thousands of them. Two threads may compute the same value twice, which does no harm. Sits at the bottom of
model.
"""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

Value = TypeVar("Value")


class cached(Generic[Value]):  # noqa: N801 - reads as a decorator, like property
    """A property that is computed once."""

    def __init__(self, work_out: Callable[[Any], Value]) -> None:
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """Store the attribute's name."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Value: ...
    def __get__(self, instance: object, owner: type | None = None) -> Self | Value:
        """Compute the value; from then on the instance's own attribute is found first."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._work_out(instance)
        return value
