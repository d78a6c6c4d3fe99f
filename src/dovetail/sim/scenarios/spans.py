"""Spans of time in a scenario's file: `30s`, or `30s-2m` to draw from."""

from functools import lru_cache

from dovetail.model.timing.duration import parse_simple
from dovetail.sim.world.clock import Span


@lru_cache(maxsize=4096)
def span(text: str) -> Span:
    """Return a span that `scenario` has checked already."""
    low, dash, high = str(text).partition("-")
    first = parse_simple(low.strip(), "smhd")
    return Span(first, parse_simple(high.strip(), "smhd") if dash else first)
