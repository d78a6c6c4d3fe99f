"""Plots as inline SVG: no script, no font, nothing fetched; readable in print, in the dark and without colour.

Every series has a colour, a dash pattern and its name at the end of its line, so that colour is never the only signal.
Colours are CSS variables that `report.page` sets for light and dark. Coordinates are rounded so that the same data
gives the same bytes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from dovetail.report.words import safe

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 14, 34
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line or one set of bars; points are (x, y) with rising x."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One point of a scatter plot; `front` ones are joined by a line."""

    name: str
    x: float
    y: float
    front: bool = False
    marked: bool = False


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    y_label: str,
    x_format: Callable[[float], str] = lambda value: f"{value:g}",
    step: bool = True,
) -> str:
    """Draw lines over time; `step` holds a value until the next point, as counts of nodes do."""
    drawn = [entry for entry in series if entry.points]
    if not drawn:
        return _nothing(title)
    x_max = max(entry.points[-1][0] for entry in drawn)
    x_min = min(entry.points[0][0] for entry in drawn)
    y_max = max((y for entry in drawn for _, y in entry.points), default=0.0)
    frame = _Frame.over(x_min, x_max, 0.0, y_max)
    parts = [_open(title), frame.axes(y_label, x_format)]
    ends: list[tuple[float, int, str]] = []
    for index, entry in enumerate(drawn):
        points = _thin(entry.points)
        path = [f"M{frame.x(points[0][0])} {frame.y(points[0][1])}"]
        for (_, y_before), (x, y) in pairwise(points):
            if step:
                path.append(f"L{frame.x(x)} {frame.y(y_before)}")
            path.append(f"L{frame.x(x)} {frame.y(y)}")
        if step and points[-1][0] < x_max:
            path.append(f"L{frame.x(x_max)} {frame.y(points[-1][1])}")
        parts.append(
            f'<path class="s{index % 6}" d="{"".join(path)}" stroke-dasharray="{_DASHES[index % 6]}">'
            f"<title>{_text(entry.name)}</title></path>"
        )
        ends.append((frame.y(points[-1][1]), index, entry.name))
    parts.append(_end_labels(ends))
    return "".join(parts) + "</svg>"


def histogram(
    title: str, series: Sequence[tuple[str, Sequence[float]]], *, edges: Sequence[float], labels: Sequence[str],
    y_label: str = "nodes",
) -> str:  # fmt: skip
    """Draw the counts per class, the series side by side; `edges` are the lower bounds of the classes."""
    counted = [(name, _counts(values, edges)) for name, values in series]
    y_max = max((amount for _, amounts in counted for amount in amounts), default=0)
    if not counted or y_max == 0:
        return _nothing(title)
    frame = _Frame.over(0.0, float(len(edges)), 0.0, float(y_max))
    parts = [_open(title), frame.axes(y_label, None)]
    slot = (WIDTH - LEFT - RIGHT) / len(edges)
    wide = slot * 0.8 / len(counted)
    for index, (name, amounts) in enumerate(counted):
        for place, amount in enumerate(amounts):
            y = frame.y(amount)
            parts.append(
                f'<rect class="b{index % 6}" x="{round(LEFT + slot * (place + 0.1) + wide * index, 1)}" y="{y}" '
                f'width="{round(wide * 0.92, 1)}" height="{round(HEIGHT - BOTTOM - y, 1)}">'
                f"<title>{_text(name)}, {_text(labels[place])}: {amount}</title></rect>"
            )
    for place, label in enumerate(labels):
        parts.append(
            f'<text x="{round(LEFT + slot * (place + 0.5), 1)}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
            f"{_text(label)}</text>"
        )
    parts.extend(
        f'<rect class="b{index % 6}" x="{WIDTH - RIGHT + 10}" y="{TOP + 18 * index}" width="10" height="10"/>'
        f'<text x="{WIDTH - RIGHT + 26}" y="{TOP + 9 + 18 * index}">{_text(_short(name, 20))}</text>'
        for index, (name, _) in enumerate(counted)
    )
    return "".join(parts) + "</svg>"


def scatter(title: str, dots: Sequence[Dot], *, x_label: str, y_label: str) -> str:
    """Draw points; those on the front are joined and filled, a marked one is named in bold."""
    if not dots:
        return _nothing(title)
    frame = _Frame.over(min(d.x for d in dots), max(d.x for d in dots), 0.0, max(d.y for d in dots), right=40)
    parts = [_open(title), frame.axes(y_label, lambda value: f"{value:g}", x_label)]
    front = sorted((d for d in dots if d.front), key=lambda d: (d.x, d.y, d.name))
    if len(front) > 1:
        path = "L".join(f"{frame.x(d.x)} {frame.y(d.y)}" for d in front)
        parts.append(f'<path class="s0" d="M{path}"/>')
    for dot in sorted(dots, key=lambda d: (d.front, d.name)):
        x, y = frame.x(dot.x), frame.y(dot.y)
        parts.append(
            f'<circle class="{"b0" if dot.front else "hollow"}" cx="{x}" cy="{y}" r="{6 if dot.marked else 4}">'
            f"<title>{_text(dot.name)}: {dot.x:g}, {dot.y:g}</title></circle>"
        )
        if dot.front or dot.marked:
            weight = ' font-weight="bold"' if dot.marked else ""
            parts.append(f'<text x="{round(x + 8, 1)}" y="{round(y - 6, 1)}"{weight}>{_text(dot.name)}</text>')
    return "".join(parts) + "</svg>"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    x_min: float
    x_max: float
    y_min: float
    y_max: float
    y_step: float
    right: int

    @classmethod
    def over(cls, x_min: float, x_max: float, y_min: float, y_max: float, right: int = RIGHT) -> "_Frame":
        step = nice_step(y_max - y_min)
        top = max(step, math.ceil(round(y_max / step, 9)) * step)
        return cls(
            x_min=x_min, x_max=x_max if x_max > x_min else x_min + 1, y_min=y_min, y_max=top, y_step=step, right=right
        )

    def x(self, value: float) -> float:
        return round(LEFT + (value - self.x_min) / (self.x_max - self.x_min) * (WIDTH - LEFT - self.right), 1)

    def y(self, value: float) -> float:
        share = (value - self.y_min) / (self.y_max - self.y_min)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    def axes(self, y_label: str, x_format: Callable[[float], str] | None, x_label: str = "") -> str:
        parts: list[str] = []
        value = self.y_min
        while value <= self.y_max + 1e-9:
            y = self.y(value)
            parts.append(
                f'<path class="grid" d="M{LEFT} {y}H{WIDTH - self.right}"/>'
                f'<text x="{LEFT - 6}" y="{round(y + 4, 1)}" text-anchor="end">{value:g}</text>'
            )
            value = round(value + self.y_step, 9)
        if x_format is not None:
            for tick in range(7):
                at = self.x_min + (self.x_max - self.x_min) * tick / 6
                parts.append(
                    f'<text x="{self.x(at)}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
                    f"{_text(x_format(at))}</text>"
                )
        middle = (TOP + HEIGHT - BOTTOM) // 2
        parts.append(
            f'<text class="label" x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
            f"{_text(y_label)}</text>"
        )
        if x_label:
            parts.append(
                f'<text class="label" x="{(LEFT + WIDTH - self.right) // 2}" y="{HEIGHT - 3}" text-anchor="middle">'
                f"{_text(x_label)}</text>"
            )
        return "".join(parts)


def nice_step(extent: float) -> float:
    """Return a step of 1, 2 or 5 times a power of ten that gives four to eight grid lines."""
    if extent <= 0:
        return 1.0
    rough = extent / 5
    power = 10.0 ** math.floor(math.log10(rough))
    for factor in (1, 2, 5, 10):
        if factor * power >= rough * 0.999999:
            return round(factor * power, 12)
    raise AssertionError(extent)


def _thin(points: Sequence[tuple[float, float]], most: int = 1500) -> Sequence[tuple[float, float]]:
    """Return few enough points for a page; the lowest and highest of each bucket stay, so that spikes stay."""
    if len(points) <= most:
        return points
    size = math.ceil(len(points) / (most // 2))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        bucket = points[start : start + size]
        low, high = min(bucket, key=lambda p: (p[1], p[0])), max(bucket, key=lambda p: (p[1], -p[0]))
        kept.extend(sorted({low, high}))
    if kept[-1] != points[-1]:
        kept.append(points[-1])
    return kept


def _counts(values: Sequence[float], edges: Sequence[float]) -> list[int]:
    amounts = [0] * len(edges)
    for value in values:
        place = max((index for index, edge in enumerate(edges) if value >= edge), default=0)
        amounts[place] += 1
    return amounts


def _end_labels(ends: list[tuple[float, int, str]]) -> str:
    """Draw names at the ends of their lines, moved apart where they would overlap."""
    places: list[float] = []
    for y, _, _ in sorted(ends):
        places.append(max(y, places[-1] + 15 if places else y))
    over = max(0.0, places[-1] - (HEIGHT - 8)) if places else 0.0
    parts: list[str] = []
    x = WIDTH - RIGHT
    for place, (_, index, name) in zip(places, sorted(ends), strict=True):
        parts.append(
            f'<path class="s{index % 6}" d="M{x + 4} {round(place - over, 1)}H{x + 22}" '
            f'stroke-dasharray="{_DASHES[index % 6]}"/>'
            f'<text x="{x + 26}" y="{round(place - over + 4, 1)}">{_text(_short(name, 20))}</text>'
        )
    return "".join(parts)


def _open(title: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_text(title)}">'


def _nothing(title: str) -> str:
    return _open(title) + f'<text x="{WIDTH // 2}" y="{HEIGHT // 2}" text-anchor="middle">nothing to show</text></svg>'


def _short(name: str, length: int) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"


def _text(text: str) -> str:
    return escape(safe(text))
