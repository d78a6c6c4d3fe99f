"""Output to standard output: JSON and pages always as UTF-8, text as far as the terminal can show it.

Only writing; what is written was made elsewhere.
"""

import os
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dovetail.api.findings import InputError

_EXAMPLE: Final = re.compile(r"(?P<what> +\S.*?\S) {3,}(?P<why>\S.*)")


def ready_streams() -> None:
    """Prepare both streams: characters that a terminal can't show become `?` instead of an error."""
    if sys.stderr is None:  # closed by the parent process; notes must not end up in the output
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
    if sys.stdout is None:
        raise InputError("standard output is closed, so there is nowhere to write the answer; open it")
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def print_json(document: Any) -> None:
    """Print one JSON document."""
    import msgspec

    print_bytes(msgspec.json.encode(document))
    print_bytes(b"\n")


def print_document(document: Any, form: str) -> None:
    """Print one document as JSON, or as YAML."""
    if form == "json":
        print_json(document)
        return
    import msgspec

    print_bytes(yaml_bytes(msgspec.to_builtins(document)))


def yaml_bytes(tree: Any) -> bytes:
    """Return a tree as YAML, keys in their order."""
    import yaml

    return bytes(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100).encode())


def print_lines(lines: Sequence[str]) -> None:
    """Print lines for people; on a terminal with colour, which never adds information."""
    paint = _painted if has_colour() else str
    print("\n".join(map(paint, lines)))


def has_colour() -> bool:
    """Return whether standard output is a terminal that wants colour (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


_BOLD, _RED, _GREEN, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[0m"
_MARKS = {"STOP": _RED, "NEVER": _RED, "Not recommended.": _RED, "pass": _GREEN, "Apply it.": _GREEN}
_MARKED = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, _MARKS))})(?![\w-])")
_HEADING = re.compile(r"[A-Z0-9<$/+ -]{4,}|[A-Z][^.]*:")


def _painted(line: str) -> str:
    if _HEADING.fullmatch(line) and any(letter.isupper() for letter in line):
        return f"{_BOLD}{line}{_PLAIN}"
    return _MARKED.sub(lambda found: f"{_MARKS[found[0]]}{found[0]}{_PLAIN}", line, count=1)


def print_page(page: str) -> None:
    """Print a page, which declares UTF-8 itself."""
    print_bytes(page.encode())


def print_bytes(data: bytes) -> None:
    """Write bytes; as text if the output is a text-only stream."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(data.decode())
        return
    sys.stdout.flush()
    buffer.write(data)


def abandon_stdout() -> None:
    """Redirect the rest of the output to nowhere, so that the interpreter doesn't complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fitted(text: str, width: int = 80) -> str:
    """Return help text in lines that fit: sentences wrapped, the description of an example closer to it, or below."""
    blocks = [_fitted_block(block.split("\n"), width) for block in text.split("\n\n")]
    return "\n\n".join(blocks)


def _fitted_block(lines: list[str], width: int) -> str:
    if all(len(line) <= width for line in lines):
        return "\n".join(lines)
    if not any(line.startswith(" ") for line in lines):
        return textwrap.fill(" ".join(lines), width, break_long_words=False, break_on_hyphens=False)
    parted = [_EXAMPLE.match(line) for line in lines]
    column = max((match.end("what") for match in parted if match), default=0) + 2
    near = all(column + len(match["why"]) <= width for match in parted if match)
    shown = []
    for line, match in zip(lines, parted, strict=True):
        if match is None:
            shown.append(line)
        elif near:
            shown.append(f"{match['what']:<{column}}{match['why']}")
        else:
            shown += [match["what"], f"      {match['why']}"]
    return "\n".join(shown)
