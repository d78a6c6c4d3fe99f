"""One run of `dovetail demo` for all tests of a process that look at it: it takes several seconds."""

import contextlib
import io
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from dovetail.cli.main import main
from dovetail.sim import compare as module
from dovetail.sim.compare import Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What the command printed and wrote, and the comparison behind both."""

    text: str
    folder: str
    pages: dict[str, bytes]
    comparison: Comparison


@cache
def demo() -> Demo:
    """Run the command in an empty folder. Tests that call this belong to the xdist group `demo`."""
    found: list[Comparison] = []
    compare = module.compare

    def recorded(*arguments: object, **options: object) -> Comparison:
        found.append(compare(*arguments, **options))  # type: ignore[arg-type]
        return found[-1]

    printed = io.StringIO()
    with (
        TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        mock.patch.object(module, "compare", recorded),
    ):
        assert main(["demo"]) == 0
        pages = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    [comparison] = found
    return Demo(text=printed.getvalue(), folder=folder, pages=pages, comparison=comparison)
