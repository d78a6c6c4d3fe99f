"""Tables and paragraphs for a terminal: columns that line up and fit the width, long text cut or wrapped.

Formats only. Text from a cluster passes `report.words.safe` here, so a name can neither move the cursor nor break a
line. `cli.output` adds colour.
"""

import textwrap
from collections.abc import Sequence

from dovetail.report.words import safe

WIDTH = 80
"""How wide tables are where nobody says otherwise: the width of a plain terminal."""
GAP = "  "
_NARROWEST = 8


def text_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    flexible: Sequence[int] = (),
    width: int | None = WIDTH,
) -> list[str]:
    """Return the lines of a table; columns in `right` are right-aligned.

    If it is too wide, the `flexible` columns (the last one if none is named) are cut, the widest first, and end in `…`.
    With a width of None nothing is cut.
    """
    cells = [[safe(cell, 4000) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    if width is not None:
        _shrink(widths, flexible or (len(head) - 1,), width)
    return [
        GAP.join(
            _cell(text, widths[place], right=place in right, last=place == len(head) - 1)
            for place, text in enumerate(row)
        ).rstrip()
        for row in cells
    ]


def _shrink(widths: list[int], flexible: Sequence[int], width: int) -> None:
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while over > 0:
        widest = max(flexible, key=lambda place: widths[place])
        if widths[widest] <= _NARROWEST:
            return
        widths[widest] -= 1
        over -= 1


def _cell(text: str, width: int, *, right: bool, last: bool) -> str:
    if len(text) > width:
        text = text[: max(0, width - 1)] + "…"
    if right:
        return text.rjust(width)
    return text if last else text.ljust(width)


def note_lines(notes: Sequence[str]) -> list[str]:
    """Return what a reader must know before the answer, and an empty line; nothing if there is nothing to say."""
    lines = [line for text in notes for line in paragraph(f"warning: {text}")]
    return [*lines, ""] if lines else []


def paragraph(text: str, *, indent: str = "", width: int = WIDTH) -> list[str]:
    """Return a paragraph wrapped to the width; if it is indented, all lines but the first get two more spaces."""
    return textwrap.wrap(
        safe(text, 4000),
        width=width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  " if indent else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
