"""What is wrong with an input, in plain language: a finding on one field, or a file that can't be used at all.

Decides nothing and prints nothing; `validate`, `decode`, `policy` and `settings` make these, `cli` shows them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_SHOWN_MAX = 80
_DEPTH_MAX = 3


def one_line(text: str) -> str:
    """Return the text with control characters escaped: names and keys may contain any, and terminals obey some."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


class InputError(Exception):
    """An input that can't be used. Its text is one sentence: where, what is there, what to write instead."""

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


class Severity(StrEnum):
    """Whether a finding makes the object unusable or is only a warning."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong (or doubtful) in a manifest: the field, its value, the problem, what to write."""

    severity: Severity
    path: str
    value: str
    message: str
    remedy: str = ""

    def line(self) -> str:
        """Return the finding as one line, without the name of the file."""
        return f"{self.severity.value}: {self.sentence()}"

    def sentence(self) -> str:
        """Return the finding without its severity: where, what is there, what is wrong, what to write."""
        value = f" ({self.value})" if self.value else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return one_line(f"{self.path}{value}: {self.message}{remedy}")


def has_errors(findings: Iterable[Finding]) -> bool:
    """Return whether any finding is an error."""
    return any(finding.severity is Severity.ERROR for finding in findings)


class Remark(str):
    """A description in the place of a value: shown without quotes."""

    __slots__ = ()


def shown(value: object, depth: int = 0) -> str:
    """Return a value as it was written, on one line and shortened."""
    if isinstance(value, (dict, list, tuple)) and depth >= _DEPTH_MAX:
        text = "..."
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {shown(value[key], depth + 1)}" for key in list(value)[:4]) + "}"
    elif isinstance(value, (list, tuple)):
        text = "[" + ", ".join(shown(inner, depth + 1) for inner in value[:4]) + "]"
    elif isinstance(value, str) and not isinstance(value, Remark):
        text = f'"{value[:_SHOWN_MAX]}' + ("" if len(value) > _SHOWN_MAX else '"')
    elif isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = "null" if value is None else str(value)
    text = one_line(text)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."
