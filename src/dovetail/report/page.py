"""One self-contained page: style inline, plots inline, no script, nothing fetched.

Decides only how things look. Text from a cluster passes `text()` (control characters visible, markup escaped) and
stands in a `<bdi>`, so that a right-to-left name can't turn the line around it.
"""

from collections.abc import Sequence
from html import escape

from dovetail.report.words import safe

_STYLE = """
:root{--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;--paper:#fff;--card:#f6f8fa;--good:#1a7f37;--bad:#b42318;
--c0:#0072b2;--c1:#d55e00;--c2:#00795c;--c3:#9b4d83;--c4:#8a6d00;--c5:#3b3b8f}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9da7b3;--line:#30363d;--paper:#0d1117;--card:#161b22;
--good:#56d364;--bad:#ff7b72;--c0:#58b4f0;--c1:#ff9a52;--c2:#3fcf9f;--c3:#e08fc6;--c4:#e3c04a;--c5:#a5a5ff}}
*{box-sizing:border-box}body{margin:0 auto;max-width:960px;padding:28px 20px 60px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:26px;line-height:1.25;margin:0 0 6px}h2{font-size:18px;margin:34px 0 8px}h3{font-size:15px;margin:20px 0 4px}
p{margin:6px 0}.lead{font-size:17px}.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}
.cards{display:flex;flex-wrap:wrap;gap:12px;margin:16px 0}.card{flex:1 1 150px;background:var(--card);border:1px solid var(--line);
border-radius:8px;padding:10px 14px}.card b{display:block;font-size:24px;line-height:1.2}
table{border-collapse:collapse;width:100%;margin:10px 0;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}th{color:var(--soft);font-weight:600}
td.n,th.n{text-align:right}tr:target{background:var(--card)}
svg{width:100%;height:auto;background:var(--card);border:1px solid var(--line);border-radius:8px;margin:4px 0 10px}
svg text{font-size:11px;fill:var(--soft)}svg .label{fill:var(--ink)}svg path{fill:none;stroke-width:1.8}svg .grid{stroke:var(--line);stroke-width:1}
svg .hollow{fill:var(--paper);stroke:var(--soft);stroke-width:1.5}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}
.b0{fill:var(--c0)}.b1{fill:var(--c1)}.b2{fill:var(--c2)}.b3{fill:var(--c3)}.b4{fill:var(--c4)}.b5{fill:var(--c5)}
details{margin:6px 0}summary{cursor:pointer}code,kbd{font:13px/1.4 ui-monospace,"DejaVu Sans Mono",Menlo,monospace}
bdi{overflow-wrap:anywhere}footer{margin-top:40px;color:var(--soft);font-size:13px;border-top:1px solid var(--line);padding-top:10px}
@media print{body{max-width:none;padding:0;font-size:11px}svg,.card{break-inside:avoid;background:none}h2{break-after:avoid}
:root{--ink:#000;--soft:#444;--line:#bbb;--paper:#fff;--card:#fff;--good:#0b5c22;--bad:#8f1206;
--c0:#0072b2;--c1:#d55e00;--c2:#00795c;--c3:#9b4d83;--c4:#8a6d00;--c5:#3b3b8f}}
"""


def text(value: object, length_max: int = 300) -> str:
    """Anything, as text that is safe inside markup and attributes."""
    return escape(safe(str(value), length_max))


def name(value: str) -> str:
    """The name of something in the cluster, isolated from the text around it."""
    return f"<bdi><code>{text(value)}</code></bdi>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int] = ()) -> str:
    """A table; cells are markup already (`text()`, `name()`); columns in `numeric` stand to the right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="n">{cell}</{tag}>' if place in numeric else f"<{tag}>{cell}</{tag}>"
            for place, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', [text(cell) for cell in head])}</tr></thead><tbody>{body}</tbody></table>"


def cards(entries: Sequence[tuple[str, str]]) -> str:
    """Large figures, each with what it is."""
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{text(figure)}</b>{text(label)}</div>' for figure, label in entries)
        + "</div>"
    )


def figure(heading: str, drawing: str, says: str) -> str:
    """A plot with its heading and one sentence that says what to see in it."""
    return f'<h3>{text(heading)}</h3><p class="soft">{text(says)}</p>{drawing}'


def page(title: str, lead: str, body: str, footer: str) -> str:
    """The whole document; `lead` and `body` are markup, title and footer plain text."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        f'<link rel="icon" href="data:,"><title>{text(title)}</title><style>{_STYLE}</style></head>'
        f'<body><h1>{text(title)}</h1><p class="lead">{lead}</p>{body}<footer>{text(footer)}</footer></body></html>\n'
    )
