"""The shape of the house: signatures, names, and no wall clock where nothing may read one.

Which room may import which is in `.importlinter`. How long a module is, and how its sentences begin, is a matter of
taste: `CONTRIBUTING.md` has advice.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tests.paths import ROOT

SRC = ROOT / "src" / "dovetail"
CORE = ("model", "api", "scheduling", "decide", "lifecycle")
PARAMETERS_MAX = 7

RHYMING = {"Actuator"}
"""The live shell and the simulator have one each, and one contract test runs over both."""
WALL_CLOCK = ("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today")


def _modules() -> list[Path]:
    return sorted(path for path in SRC.rglob("*.py") if path.name != "__init__.py")


def _name(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


@lru_cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@lru_cache
def _exports(module: str) -> frozenset[str] | None:
    """Return the names that can be imported from a module of the program; None where there is no such module."""
    place = SRC.parent.joinpath(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not path.exists():
        return None
    found = {entry.stem for entry in place.glob("*")} if place.is_dir() else set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return frozenset(found)


@pytest.mark.parametrize("folder", ["tests", "tools", "benchmarks"])
def test_what_is_imported_exists(folder: str) -> None:
    """Every name of the program that tests and tools import is there; mypy sees only the program itself."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dovetail":
                exports = _exports(str(node.module))
                assert exports is not None, f"{path.relative_to(ROOT)}:{node.lineno}: no module {node.module}"
                missing = [alias.name for alias in node.names if alias.name not in exports]
                assert not missing, f"{path.relative_to(ROOT)}:{node.lineno}: {node.module} has no {missing}"


def _signatures(path: Path) -> Iterator[tuple[str, int]]:
    tree = _tree(path)
    owners = [(f"{node.name}.", node.body) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for owner, body in [("", tree.body), *owners]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(entry.arg not in ("self", "cls") for entry in every)
                yield f"{_name(path)} {owner}{node.name}", count


def test_functions_take_few_parameters() -> None:
    """No function takes more than seven parameters."""
    for path in _modules():
        for name, count in _signatures(path):
            assert count <= PARAMETERS_MAX, f"{name} takes {count} parameters"


def test_a_name_means_one_thing() -> None:
    """No two public classes share a name."""
    where: dict[str, list[str]] = {}
    for path in _modules():
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(_name(path))
    for name, places in where.items():
        assert len(places) == 1 or name in RHYMING, f"{name} is in {places}"


@pytest.mark.parametrize("room", CORE)
def test_the_core_reads_no_clock(room: str) -> None:
    """The core never reads the clock; `now` is a parameter (also checked by ruff, TID251)."""
    for path in sorted((SRC / room).rglob("*.py")):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert node.func.attr not in ("now", "utcnow", "today"), f"{_name(path)}:{node.lineno}"


def test_ruff_bans_the_wall_clock() -> None:
    """The ban covers every package that is not a shell."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert set(WALL_CLOCK) <= set(lint["flake8-tidy-imports"]["banned-api"])
    allowed = {glob for glob, rules in lint["per-file-ignores"].items() if "TID251" in rules}
    assert not any(
        glob.startswith(f"src/dovetail/{room}") for glob in allowed for room in (*CORE, "plan", "report", "sim")
    )


def test_question_is_the_only_way_to_ask() -> None:
    """`plan_round` takes the question and how much to show of the answer, no more."""
    signature = dict(_signatures(SRC / "decide" / "round.py"))
    assert signature["decide/round.py plan_round"] == 3


def test_rooms_of_tests_share_through_support() -> None:
    """A test room imports its own modules, `tests.support`, `tests.paths` and the reference packer, no other room's."""
    rooms = ROOT / "tests"
    for path in sorted(rooms.rglob("*.py")):
        room = path.relative_to(rooms).parts[0]
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("tests."):
                used = node.module.split(".")[1]
                assert used in (room, "support", "paths", "reference"), (
                    f"{path.relative_to(ROOT)} imports {node.module}"
                )


DESIGN_CODE = re.compile(r"\bS[0-4]\b|\bseed 00\d")


@pytest.mark.parametrize("folder", ["src", "tests", "docs"])
def test_designs_are_named(folder: str) -> None:
    """A rule names its design as `docs/designs` does, which a reader can open; not by a number."""
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in (".py", ".md", ".yaml") and path != Path(__file__) and "decisions" not in path.parts:
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                assert not DESIGN_CODE.search(line), f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def test_the_picture_has_every_folder() -> None:
    """`docs/internals/architecture.md` names every package of the program."""
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text()
    packages = {path.parent.relative_to(SRC).as_posix() for path in SRC.rglob("__init__.py")} - {"."}
    missing = [name for name in sorted(packages) if not re.search(rf"\b{name.rpartition('/')[2]}\b", page)]
    assert missing == []


GENERATED_PAGES = ("decision-agreement.md", "placement-agreement.md")
PROSE_MAX = 125


def test_pages_are_wrapped() -> None:
    """Prose of the docs is wrapped at about 100 columns; tables, code and generated pages may be longer."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if path.name in GENERATED_PAGES or path.parent.name == "benchmarks":
            continue
        in_code = False
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if line.lstrip().startswith(("```", "~~~")):
                in_code = not in_code
            elif not in_code and not line.lstrip().startswith(("|", "<", "#", "!", "[")):
                assert len(line) <= PROSE_MAX, f"{path.name}:{number} has {len(line)} columns: wrap it"
