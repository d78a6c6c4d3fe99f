"""Breaks the rules on purpose, one small change at a time, and looks whether a test notices.

    python tools/mutants.py [--seed N] [--each N] [--only PART] [--list]

A mutant is one operator, constant, condition or call of `decide`, `lifecycle` or the actuators that is changed or left
out. `--each` are drawn for every module by the seed alone; each one runs the tests that are mapped to its module, in a
copy of the sources, with a time limit (a test that hangs has noticed too). Survivors are printed with file, line and
change. Mutants that can't be told from the original (they only cost time, or reword a sentence) are listed in
`tools/mutants_known.txt` with the reason. Exit status 1 where more than 5 % of those tried survive.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ROOT / "src" / "dovetail"
KNOWN: Final = ROOT / "tools" / "mutants_known.txt"
SURVIVORS_MAX: Final = 0.05
SLOWER_MAX: Final = 5
"""A mutant whose tests take so many times as long as without it hangs, which is noticed too."""

_DECIDE: Final = ("tests/designs", "tests/decide", "tests/golden/test_decisions.py")
_LIFE: Final = ("tests/lifecycle", "tests/sim/test_checkers.py", "tests/sim/test_side_by_side.py")
_ACT: Final = ("tests/effects", "tests/live/test_actuate.py", "tests/lifecycle/test_engine.py")
TESTS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("lifecycle/effects/", _ACT),
    ("live/actuate.py", _ACT),
    ("sim/world/actuate.py", _ACT),
    ("live/lease.py", ("tests/live/test_lease.py", "tests/live/test_step_down.py")),
    ("decide/", _DECIDE),
    ("lifecycle/", _LIFE),
)
"""Which tests answer for which sources; the first that fits."""
LEFT_OUT: Final = (
    "decide/facts/cache.py",  # what is remembered only saves time; tests/properties compares it with an oracle
    "decide/words.py",  # sentences
    "decide/warnings.py",
    "lifecycle/journal.py",
    "lifecycle/invariants.py",  # itself a checker of tests
)

_COMPARE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BINARY: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS: Final = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: where, what, and the whole changed source."""

    path: str
    line: int
    what: str
    source: str

    @property
    def key(self) -> str:
        """How it is named in the list of known ones: by its text, as lines move."""
        return f"{self.path}: {self.what}"


# ---------------------------------------------------------------- changes


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield what a node may become instead, each with the words for it."""
    match node:
        case ast.Compare(ops=[only]) if type(only) in _COMPARE:
            yield _with(node, ops=[_COMPARE[type(only)]()]), "comparison"
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And()), "and/or"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand, "not"
        case ast.BinOp(op=op) if type(op) in _BINARY and not _is_text(node):
            yield _with(node, op=_BINARY[type(op)]()), "operator"
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield _with(node, func=ast.Name(id=_CALLS[name], ctx=ast.Load())), "call"
        case ast.Constant(value=bool(value)):
            yield ast.Constant(value=not value), "constant"
        case ast.Constant(value=int(value)):
            yield ast.Constant(value=value + 1), "constant"
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, (ast.Compare, ast.UnaryOp)):
            yield _with(node, test=ast.UnaryOp(op=ast.Not(), operand=test)), "condition"
        case ast.Expr(value=ast.Call()):
            yield ast.Pass(), "call left out"
        case ast.Continue():
            yield ast.Pass(), "continue"


def _with(node: ast.AST, **fields: object) -> ast.AST:
    values = {name: getattr(node, name) for name in node._fields}
    return type(node)(**{**values, **fields})


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(side, (ast.JoinedStr, ast.Constant)) and not _is_number(side) for side in _sides(node))


def _sides(node: ast.BinOp) -> tuple[ast.expr, ast.expr]:
    return node.left, node.right


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


class _Swap(ast.NodeTransformer):
    """Puts one node in place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        """Swap it, or look further down."""
        return ast.copy_location(self.new, node) if node is self.old else super().generic_visit(node)


def _places(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that may be changed: code in functions, but no annotations, assertions and sentences."""
    skipped = (ast.Assert, ast.JoinedStr, ast.AnnAssign, ast.arguments, ast.Raise)
    todo: list[tuple[ast.AST, bool]] = [(tree, False)]
    while todo:
        node, inside = todo.pop()
        if isinstance(node, skipped):
            if isinstance(node, ast.AnnAssign) and node.value is not None and inside:
                todo.append((node.value, inside))
            continue
        inside = inside or isinstance(node, (ast.FunctionDef, ast.Lambda))
        if inside:
            yield node
        children = [child for name, child in _children(node) if name not in ("returns", "decorator_list", "annotation")]
        todo.extend((child, inside) for child in children)


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield name, child


def mutants_of(path: Path) -> list[Mutant]:
    """Return all mutants of a module, in order."""
    text = path.read_text(encoding="utf-8")
    shown = path.relative_to(SOURCES).as_posix()
    count = sum(1 for node in _places(ast.parse(text)) for _ in changes(node))
    found = []
    for number in range(count):
        tree = ast.parse(text)
        node, new, what = [(n, c, w) for n in _places(tree) for c, w in changes(n)][number]
        before = ast.unparse(node).split("\n")[0]
        line = getattr(node, "lineno", 0)
        changed = ast.fix_missing_locations(_Swap(node, new).visit(tree))
        after = ast.unparse(new).split("\n")[0]
        found.append(Mutant(shown, line, f"{what}: {before} -> {after}", ast.unparse(changed)))
    return sorted(found, key=lambda mutant: (mutant.line, mutant.what))


# ---------------------------------------------------------------- trying them


def tests_for(path: str) -> tuple[str, ...]:
    """Return the tests that answer for a module."""
    return next(tests for part, tests in TESTS if path.startswith(part))


def modules() -> list[Path]:
    """Return all modules that are mutated, by name."""
    found = [path for path in sorted(SOURCES.rglob("*.py")) if path.name != "__init__.py"]
    shown = {path: path.relative_to(SOURCES).as_posix() for path in found}
    return [
        path for path in found if any(shown[path].startswith(part) for part, _ in TESTS) and shown[path] not in LEFT_OUT
    ]


def passes(tests: tuple[str, ...], folder: Path, limit: float | None = None) -> bool:
    """Return whether tests pass on the sources in a folder, within so many seconds."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow and not apiserver and not e2e"]
    command += ["-p", "no:cacheprovider", "--no-header", "--tb=no", "--hypothesis-seed=1", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def survives(mutant: Mutant, folder: Path, limit: float) -> bool:
    """Return whether all mapped tests pass with the mutant in place of its module."""
    target = folder / "dovetail" / mutant.path
    original = target.read_bytes()
    target.unlink()  # the copy is made of links
    target.write_text(mutant.source, encoding="utf-8")
    try:
        return passes(tests_for(mutant.path), folder, limit)
    finally:
        target.unlink()
        target.write_bytes(original)


def known() -> dict[str, str]:
    """Return the mutants that can't be told from the original, each with the reason."""
    lines = KNOWN.read_text(encoding="utf-8").splitlines() if KNOWN.exists() else []
    entries = [line.split(" # ", 1) for line in lines if line.strip() and not line.startswith("#")]
    return {entry[0].strip(): entry[-1].strip() for entry in entries}


def sample(seed: int, each: int, only: str) -> list[Mutant]:
    """Draw mutants of every module, by the seed and the module's name alone."""
    chosen = []
    excused = known()
    for path in modules():
        shown = path.relative_to(SOURCES).as_posix()
        if only in shown:
            found = [mutant for mutant in mutants_of(path) if mutant.key not in excused]
            chosen += random.Random(f"{seed}/{shown}").sample(found, min(each, len(found)))
    return chosen


def main() -> int:
    """Try a sample; print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=2, help="mutants per module (default 2)")
    parser.add_argument("--only", default="", help="modules whose path has this in it")
    parser.add_argument("--list", action="store_true", help="print the sample and try nothing")
    args = parser.parse_args()
    chosen = sample(args.seed, args.each, args.only)
    if args.list:
        for mutant in chosen:
            print(f"src/dovetail/{mutant.path}:{mutant.line}: {mutant.what}")
        return 0
    survivors = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copytree(SOURCES, folder / "dovetail", copy_function=os.link, ignore=shutil.ignore_patterns("*.pyc"))
        limits: dict[tuple[str, ...], float] = {}
        for tests in dict.fromkeys(tests_for(mutant.path) for mutant in chosen):
            began = time.monotonic()
            good = passes(tests, folder)
            limits[tests] = 60 + SLOWER_MAX * (time.monotonic() - began)
            if not good:
                print(f"these tests fail without any mutant: {' '.join(tests)}", file=sys.stderr)
                return 2
        for number, mutant in enumerate(chosen, 1):
            began = time.monotonic()
            lives = survives(mutant, folder, limits[tests_for(mutant.path)])
            state = "SURVIVED" if lives else "killed"
            passed = time.monotonic() - began
            print(
                f"{number}/{len(chosen)} {state} {passed:.0f} s {mutant.path}:{mutant.line}: {mutant.what}", flush=True
            )
            if lives:
                survivors.append(mutant)
    share = len(survivors) / len(chosen) if chosen else 0.0
    print(f"\n{len(chosen)} mutants tried, {len(survivors)} survived ({share:.1%})")
    for mutant in survivors:
        print(f"  src/dovetail/{mutant.path}:{mutant.line}: {mutant.what}")
    return 1 if share > SURVIVORS_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
