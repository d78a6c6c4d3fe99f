"""What is wrong with an input, in words for people: a finding on one field, or a file that can't be used at all.

Decides nothing and prints nothing; `validate`, `decode`, `policy` and `settings` make these, `cli` shows them.
"""

from dataclasses import dataclass
from enum import StrEnum

_SHOWN_MAX = 80


class InputError(Exception):
    """An input that can't be used. Its text is one sentence: where, what is there, what to write instead."""


class Severity(StrEnum):
    """Whether a finding makes the object unusable or is only worth a look."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong (or doubtful) in a manifest: the field, what it holds, why not, what to write."""

    severity: Severity
    path: str
    value: str
    message: str
    remedy: str = ""

    def line(self) -> str:
        """Give the finding as one line, without the name of the file."""
        value = f" ({self.value})" if self.value else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.severity.value}: {self.path}{value}: {self.message}{remedy}"


class Remark(str):
    """Words of ours in the place of a value: shown without quotes."""

    __slots__ = ()


def shown(value: object) -> str:
    """Give a value as people wrote it, on one line and not too long."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif value is None:
        text = "null"
    elif isinstance(value, Remark):
        text = str(value)
    elif isinstance(value, str):
        text = '"' + value.encode("unicode_escape").decode("ascii") + '"' if not value.isprintable() else f'"{value}"'
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {shown(inner)}" for key, inner in list(value.items())[:4]) + "}"
    elif isinstance(value, (list, tuple)):
        text = "[" + ", ".join(shown(inner) for inner in value[:4]) + "]"
    else:
        text = str(value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."
