"""One self-contained page: style, script and data inline, nothing fetched, a strict content security policy.

Decides only how things look. Text from a cluster passes `text()` (control characters visible, markup escaped) and is
inside a `<bdi>`, so that a right-to-left name can't reorder the line around it. The script gets one JSON document,
escaped so that it can't end its element, and writes text nodes only.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from dovetail.report.scripts import hash_of, script, style
from dovetail.report.words import count, safe

_PLAIN_MAX: Final = 300_000
"""A longer document is compressed, so that a page of thousands of nodes can still be mailed."""
_STACKED_FROM: Final = 3
"""A table with so many columns of text shows each row as a block on a phone."""
_OPEN_MAX: Final = 5
_LOGO: Final = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M3 4h18v5l-5 2 2 5H6l2-5-5-2z" fill="var(--accent)"/>'
    '<path d="M3 20h18v-2H3z" fill="var(--soft)"/></svg>'
)


def text(value: object, length_max: int = 300) -> str:
    """Return anything as text that is safe inside markup and attributes."""
    return escape(safe(str(value), length_max))


def name(value: str) -> str:
    """Return the name of something in the cluster, isolated from the text around it."""
    return f"<bdi><code>{text(value)}</code></bdi>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table that scrolls by itself; cells are already markup, `numbers` are the right-aligned columns."""
    classes = [' class="n"' if place in numbers else "" for place in range(len(head))]
    stacked = len(head) - len(numbers) >= _STACKED_FROM
    labels = [f' data-label="{text(title)}"' if stacked else "" for title in head]
    top = "".join(f'<th scope="col"{mark}>{text(title)}</th>' for title, mark in zip(head, classes, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{m}{label}>{cell}</td>" for cell, m, label in zip(row, classes, labels, strict=True))
        + "</tr>"
        for row in rows
    )
    kind = ' class="stacked"' if stacked else ""
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{text(head[0])} table">'
        f"<table{kind}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def cards(figures: Sequence[tuple[str, str]]) -> str:
    """Return large figures, each with its label."""
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{text(figure)}</b>{text(label)}</div>' for figure, label in figures)
        + "</div>"
    )


def panel(heading: str, body: str) -> str:
    """Return a part of the page with its heading."""
    return f'<section class="panel"><h2>{text(heading)}</h2>{body}</section>'


def story(sentences: Sequence[str]) -> str:
    """Return the page's first sentences."""
    return '<ol class="story">' + "".join(f"<li><bdi>{text(entry, 1000)}</bdi></li>" for entry in sentences) + "</ol>"


def notes(sentences: Sequence[str]) -> str:
    """Return what a reader must know before the answer: each sentence in a paragraph of its own."""
    return "".join(f'<p class="lead note"><b>Warning:</b> <bdi>{text(entry, 1000)}</bdi></p>' for entry in sentences)


def warnings(sentences: Sequence[str]) -> str:
    """Return a part of the page with the warnings of the answer, folded if they are many."""
    if not sentences:
        return ""
    items = "".join(f"<li><bdi>{text(entry, 500)}</bdi></li>" for entry in sentences)
    opened = " open" if len(sentences) <= _OPEN_MAX else ""
    return panel(
        "Warnings", f"<details{opened}><summary>{count(len(sentences), 'warning')}</summary><ul>{items}</ul></details>"
    )


def embedded(document: Mapping[str, Any] | None) -> str:
    """Return a JSON document as an element, escaped so that its content can't end it."""
    raw = json.dumps(document, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    if len(raw) > _PLAIN_MAX:
        packed = b64encode(gzip.compress(raw.encode(), mtime=0)).decode()
        return f'<script type="application/json" id="document" data-encoding="gzip">{packed}</script>'
    raw = raw.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="document">{raw}</script>'


def policy_of(connect: str = "'none'") -> str:
    """Return the content security policy: the page's own script and style by their hash, and nothing else."""
    return (
        f"default-src 'none'; script-src {hash_of(script())}; style-src {hash_of(style())}; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def page(
    title: str,
    lead: str,
    body: str,
    footer: str,
    *,
    above: str = "",
    document: Mapping[str, Any] | None = None,
    connect: str = "'none'",
) -> str:
    """Return the whole page; `lead`, `above` and `body` are markup, title and footer plain text.

    The script draws `document` into the element `view`, which is between `above` and the body.
    """
    view = '<div id="view"></div><noscript><p>The pictures need JavaScript; the figures are all here.</p></noscript>'
    if document is None and connect == "'none'":
        view = ""
    lead = f'<p class="lead">{lead}</p>' if lead else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy_of(connect)}">'
        f'<link rel="icon" href="data:,"><title>{text(title)}</title><style>{style()}</style></head>'
        f'<body><div class="page"><header class="top"><span class="brand">{_LOGO}dovetail</span></header>'
        f"<main><h1><bdi>{text(title)}</bdi></h1>{lead}{above}{view}{body}</main>"
        f"<footer>{text(footer, 600)}</footer></div>"
        f"{embedded(document)}<script>{script()}</script></body></html>\n"
    )
