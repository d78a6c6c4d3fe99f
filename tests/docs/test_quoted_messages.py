"""Messages and signatures that the docs quote are those of the program."""

import inspect
import re

from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.engine_state import EngineRole
from tests.paths import ROOT

_JOINTS = re.compile(r'"\s*\n\s*f?"')
"""Where one string of the source goes on in the next line."""


def _source() -> str:
    parts = [path.read_text() for path in sorted((ROOT / "src").rglob("*.py"))]
    return _JOINTS.sub("", "\n".join(parts))


def test_troubleshooting_quotes_messages_that_exist() -> None:
    """Every part between the dots of a quoted message is in the source, with figures and names left out."""
    source = _source()
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    quoted = re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE)
    assert len(quoted) > 5
    for message in quoted:
        for part in filter(None, (piece.strip() for piece in message.split("..."))):
            assert part in source, f"{message!r}: no message of Dovetail contains {part!r}"


def test_the_engine_is_built_as_the_docs_say() -> None:
    """The example of internals/lifecycle.md uses parameters and fields that exist, and its table names the fields."""
    page = (ROOT / "docs" / "internals" / "lifecycle.md").read_text()
    [example] = re.findall(r"^engine = (Engine\(.*\))$", page, flags=re.MULTILINE)
    assert list(inspect.signature(Engine).parameters)[:3] == ["settings", "catalogue", "role"]
    assert example.startswith("Engine(settings, catalogue, EngineRole(")
    fields = set(inspect.signature(EngineRole).parameters)
    assert set(re.findall(r"(\w+)=", example)) <= fields
    table = page.partition("| field of `EngineRole` |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == fields
