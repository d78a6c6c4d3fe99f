"""The pages' script and style: the modules of `report/web`, joined into one text that a page can hold.

The modules are plain JavaScript that a browser and Node run as they are. Joining them needs no tool: each import names
a module of the same folder on one line, so they are put in order and the import and export words are dropped. All
top-level names differ, which `tests/report/test_scripts.py` checks.
"""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Final

_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+)\.js";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?function |const |let |class )", re.MULTILINE)
MAIN: Final = "main"


def source(module: str) -> str:
    """Return one module as it was written."""
    return resources.files("dovetail.report").joinpath("web", f"{module}.js").read_text(encoding="utf-8")


def ordered(main: str = MAIN) -> list[str]:
    """Return the modules that `main` needs, each after those that it imports."""
    found: list[str] = []
    open_: list[str] = []

    def visit(module: str) -> None:
        if module in found:
            return
        if module in open_:
            raise ValueError(f"{' imports '.join([*open_[open_.index(module) :], module])}: a circle")
        open_.append(module)
        for needed in _IMPORT.findall(source(module)):
            visit(needed)
        open_.pop()
        found.append(module)

    visit(main)
    return found


@cache
def script(main: str = MAIN) -> str:
    """Return the whole script of a page."""
    parts = ['"use strict";\n(() => {']
    for module in ordered(main):
        text = _EXPORT.sub("", _IMPORT.sub("", source(module)))
        parts.append(f"// ---- {module}.js\n{text.strip()}")
    parts.append("})();")
    return "\n".join(parts) + "\n"


@cache
def style() -> str:
    """Return the style sheet of all pages."""
    return resources.files("dovetail.report").joinpath("web", "style.css").read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """Return the hash by which a content security policy names an inline script or style."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
