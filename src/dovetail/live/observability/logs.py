"""Structured logs: one JSON object a line on standard error, with the command's id from its decision to its end.

Text from the cluster is made safe first, so that no name can forge or break a line. Credentials never come near here:
requests and headers are not logged at any level.
"""

import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from dovetail.report.words import safe

LEVELS: Final = ("debug", "info", "warning", "error")


class Log:
    """Writes lines at or above a level; `bind` gives one that adds fields to each."""

    def __init__(self, level: str = "info", stream: TextIO | None = None, **fields: object) -> None:
        self._level = LEVELS.index(level)
        self._stream = stream if stream is not None else sys.stderr
        self._fields = fields

    def bind(self, **fields: object) -> "Log":
        """Return a log whose every line has these fields too."""
        return Log(LEVELS[self._level], self._stream, **{**self._fields, **fields})

    def debug(self, message: str, **fields: object) -> None:
        """Log what a developer wants to know."""
        self._write("debug", message, fields)

    def info(self, message: str, **fields: object) -> None:
        """Log what happened."""
        self._write("info", message, fields)

    def warning(self, message: str, **fields: object) -> None:
        """Log what an operator should look at."""
        self._write("warning", message, fields)

    def error(self, message: str, **fields: object) -> None:
        """Log what an operator must look at."""
        self._write("error", message, fields)

    def _write(self, level: str, message: str, fields: dict[str, object]) -> None:
        if LEVELS.index(level) < self._level:
            return
        line: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level}
        line["message"] = safe(message, 2000)
        for key, value in {**self._fields, **fields}.items():
            line[key] = safe(value, 2000) if isinstance(value, str) else value
        self._stream.write(msgspec.json.encode(line).decode() + "\n")
        self._stream.flush()
