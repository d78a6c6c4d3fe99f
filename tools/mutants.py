"""Breaks the rules on purpose, one small change at a time, and looks whether a test notices.

    python tools/mutants.py [--seed N] [--each N] [--only PART] [--jobs N] [--map FILE] [--again OUTPUT] [--list]

A mutant is one operator, constant, condition or call of `decide`, `lifecycle` or the actuators that is changed or left
out. `--each` are drawn for every module by the seed alone. The tests are collected once. A first run notes which test
calls which function and what it costs; a test that fails there says nothing and is left out, by name. Then a copy of
the process is made for each mutant: the changed function takes the place of the real one, and the tests that call it
run until one fails: first those that noticed another change there, then the cheapest. Limits count the
processor's time, not the clock's, so a busy machine kills nothing; a mutant that uses many times as much as the real
code hangs, which is noticed too.

Survivors are printed with file, line and change. A few can't be told from the original: they only cost time, or reword a
sentence. Exit status 1 where more than 5 % of those tried survive.
"""

import argparse
import ast
import gc
import importlib
import json
import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ROOT / "src" / "dovetail"
SURVIVORS_MAX: Final = 0.05
SLOWER_MAX: Final = 5
"""A mutant that makes a test take so many times the processor time it takes without it hangs, which is noticed too."""
SPARE: Final = 5
"""Seconds of processor time that come on top of that."""
PATIENCE: Final = 1800
"""Seconds of the clock after which a mutant that waits for something without working counts as noticed."""
NOTICED: Final = 1
BROKEN_OFF: Final = 70
"""How the copies of the process end: a test has failed; or the copy itself broke, which is no test's doing."""
FILE_MAX: Final = 20
"""Seconds of processor time for the footprints of one file of tests; what comes later in it is left out."""
TESTS: Final = (
    "tests/designs",
    "tests/decide",
    "tests/lifecycle",
    "tests/effects",
    "tests/live/test_actuate.py",
    "tests/live/test_actuate_tables.py",
    "tests/live/test_answers.py",
    "tests/live/test_lease.py",
    "tests/live/test_lease_tables.py",
    "tests/live/test_fencing.py",
    "tests/sim/test_side_by_side.py",
    "tests/sim/test_rollouts.py",
    "tests/sim/test_world_actuate.py",
    "tests/karpenter_features/test_static_pools.py",
    "tests/karpenter_features/test_terminate_first.py",
    "tests/golden/test_decisions.py",
    "tests/golden/test_units_decisions.py",
    "tests/properties/test_bounds_in_motion.py",
)
"""The tests that answer for the sources below."""
MUTATED: Final = ("decide/", "lifecycle/", "live/actuate.py", "live/kubernetes/lease.py", "sim/world/actuate.py")
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
    """One change: where, what, and the outermost function it is in, as it is and as it becomes."""

    path: str
    line: int
    what: str
    function: str
    changed: CodeType

    @property
    def key(self) -> str:
        """Return how it is named in the list of known ones: by its function and its text, as lines move."""
        return f"{self.function}: {self.what}"

    @property
    def wide_key(self) -> str:
        """Return how it and all changes of the same text in its file are named there."""
        return f"{self.path}: {self.what}"

    @property
    def shown(self) -> str:
        """Return it as a line of output."""
        return f"src/dovetail/{self.path}:{self.line}: {self.what}"


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
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            return  # nothing gets there
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
        if isinstance(node, ast.AugAssign | ast.Assign) and _is_version(node):
            continue  # a version only has to be another one
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue  # zip's own assertion
        if isinstance(node, skipped):
            if isinstance(node, ast.AnnAssign) and node.value is not None and inside:
                todo.append((node.value, inside))
            continue
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if inside:
            yield node
        children = [child for name, child in _children(node) if name not in ("returns", "decorator_list", "annotation")]
        todo.extend((child, inside) for child in children)


def _is_version(node: ast.AugAssign | ast.Assign) -> bool:
    target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
    counts = isinstance(node, ast.AugAssign) or isinstance(node.value, ast.Constant)
    return counts and ast.unparse(target).endswith("version")


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield name, child


def mutants_of(path: Path, dice: random.Random) -> Iterator[Mutant]:
    """Yield all mutants of a module, in an order that the dice decide; each is made when it is asked for."""
    text = path.read_text(encoding="utf-8")
    shown = path.relative_to(SOURCES).as_posix()
    real = functions_of(compile(text, str(path), "exec", dont_inherit=True))
    count = sum(1 for node in _places(ast.parse(text)) for _ in changes(node))
    for number in dice.sample(range(count), count):
        tree = ast.parse(text)
        node, new, what = next(islice(((n, c, w) for n in _places(tree) for c, w in changes(n)), number, None))
        before, after = (ast.unparse(each).split("\n")[0] for each in (node, new))
        line = getattr(node, "lineno", 0)
        whole = ast.fix_missing_locations(_Swap(node, new).visit(tree))
        broken = functions_of(compile(whole, str(path), "exec", dont_inherit=True))
        differs = [name for name, code in real.items() if broken.get(name, code) != code]
        if len(differs) == 1:
            yield Mutant(shown, line, f"{what}: {before} -> {after}", differs[0], broken[differs[0]])


def functions_of(code: CodeType) -> dict[str, CodeType]:
    """Return the outermost functions of a module or class by file and name."""
    found: dict[str, CodeType] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 2:  # has its own local names: a function, no class
                found[_name_of(constant)] = constant
            else:
                found |= functions_of(constant)
    return found


def _name_of(code: CodeType) -> str:
    shown = Path(code.co_filename).relative_to(SOURCES).as_posix()
    line = f":{code.co_firstlineno}" if "<lambda>" in code.co_qualname else ""
    return f"{shown}:{code.co_qualname}{line}"


# ---------------------------------------------------------------- drawing them


def modules() -> list[Path]:
    """Return all mutated modules, by name."""
    found = [path for path in sorted(SOURCES.rglob("*.py")) if path.name != "__init__.py"]
    shown = {path: path.relative_to(SOURCES).as_posix() for path in found}
    return [path for path in found if shown[path].startswith(MUTATED) and shown[path] not in LEFT_OUT]


def survived(output: Path) -> frozenset[str]:
    """Return the mutants that an earlier run told as survivors, by the text of the change."""
    told = [
        line.split(" SURVIVED src/dovetail/", 1)[1] for line in output.read_text().splitlines() if " SURVIVED " in line
    ]
    places = [line.rsplit(" (", 1)[0].split(":", 2) for line in told]
    return frozenset(f"{path}:{what}" for path, _, what in places)


def sample(seed: int, each: int, only: str, again: frozenset[str] | None = None) -> list[Mutant]:
    """Draw mutants of every module, by the seed and the module's name alone; or take those to be tried again."""
    chosen: list[Mutant] = []
    for path in modules():
        shown = path.relative_to(SOURCES).as_posix()
        if only in shown:
            drawn = mutants_of(path, random.Random(f"{seed}/{shown}"))
            chosen += islice(drawn, each) if again is None else (m for m in drawn if m.wide_key in again)
    return chosen


# ---------------------------------------------------------------- trying them


@dataclass(slots=True)
class Footprint:
    """What one test does without a mutant: seconds of processor time, the functions it calls, whether it passes."""

    cost: float
    calls: list[str]
    passes: bool


@dataclass(slots=True)
class Result:
    """What became of one mutant."""

    mutant: Mutant
    lives: bool
    why: str


@dataclass(slots=True, eq=False)  # pytest puts its plugins into sets
class Trials:
    """A plugin of pytest: takes the collected tests and tries mutants with them instead of running them."""

    chosen: Sequence[Mutant]
    jobs: int
    budget: float
    map_file: Path | None
    results: list[Result] = field(default_factory=list)
    footprints: dict[str, Footprint] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    noticed: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each function and each file, the tests that noticed a change of it, and how often."""
    places: dict[str, list[FunctionType]] = field(default_factory=dict)
    """The functions there are, by name."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record failures."""
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Take the footprints, then try every mutant in a copy of this process."""
        for module in modules():
            importlib.import_module(".".join(("dovetail", *module.relative_to(SOURCES).with_suffix("").parts)))
        if session.testsfailed:
            print("the tests can't be collected", file=sys.stderr)
            return True
        self._take_footprints(session.items)
        red = [name for name, footprint in self.footprints.items() if not footprint.passes]
        for name in red:
            print(f"left out, as it fails without any mutant: {name}", flush=True)
        for function in _live_functions():
            self.places.setdefault(_name_of(function.__code__), []).append(function)
        gc.freeze()
        waiting = list(self.chosen)
        running: dict[int, tuple[Mutant, Path, float]] = {}
        with tempfile.TemporaryDirectory() as scratch:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    mutant = waiting.pop(0)
                    note = Path(scratch) / str(len(waiting))
                    tests = self._tests_for(mutant, session.items)
                    if tests:
                        running[_copy(lambda m=mutant, t=tests, n=note: self._try(m, t, n))] = (
                            mutant,
                            note,
                            time.monotonic(),
                        )
                    else:
                        self._tell(Result(mutant, lives=True, why="no test calls it"))
                self._collect(running)
        return True

    def _take_footprints(self, items: Sequence[pytest.Item]) -> None:
        """Learn what every test calls: from the map, and by running those that are not in it."""
        with tempfile.TemporaryDirectory() as scratch:
            book = self.map_file or Path(scratch) / "map"
            book.touch()
            self._read(book)
            missing = [item for item in items if item.nodeid not in self.footprints]
            print(f"{len(items)} tests, {len(missing)} without a footprint", flush=True)
            files = sorted({item.path for item in missing})
            parts = [set(files[at :: self.jobs]) for at in range(self.jobs)]
            mine = [[item for item in missing if item.path in part] for part in parts]
            walks = [_copy(lambda part=part: self._walk(part, book)) for part in mine if part]
            ends = [os.waitpid(pid, 0)[1] for pid in walks]
            if any(ends):
                raise RuntimeError("the tests that the footprints are taken of broke off")
            self._read(book)

    def _read(self, book: Path) -> None:
        for line in book.read_text(encoding="utf-8").splitlines():
            name, entry = json.loads(line)
            self.footprints[name] = Footprint(**entry)

    def _walk(self, items: Sequence[pytest.Item], book: Path) -> int:
        """Run tests; note for each which functions it calls."""
        names = {id(function.__code__): _name_of(function.__code__) for function in _live_functions()}
        notes = os.open(book, os.O_WRONLY | os.O_APPEND)
        spent = dict.fromkeys((item.path for item in items), 0.0)
        for at, item in enumerate(items):
            if spent[item.path] > FILE_MAX:
                continue
            hits: set[int] = set()

            def look(frame: FrameType, event: str, arg: object, hits: set[int] = hits) -> None:
                code = id(frame.f_code)
                if code in names:
                    hits.add(code)

            began = time.process_time()
            threading.settrace(look)
            sys.settrace(look)
            try:
                good = self._passes(item, items[at + 1] if at + 1 < len(items) else None)
            finally:
                sys.settrace(None)
            cost = round(time.process_time() - began, 4)
            spent[item.path] += cost
            footprint = Footprint(cost, sorted({names[hit] for hit in hits}), good)
            os.write(notes, (json.dumps([item.nodeid, asdict(footprint)]) + "\n").encode())
        return 0

    def _passes(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        self.failed.clear()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self.failed

    def _tests_for(self, mutant: Mutant, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        """Return the tests that call what is changed: those that noticed others, then the cheap, within the budget."""
        noticed, near = (self.noticed.get(place, {}) for place in (mutant.function, mutant.path))
        calling = []
        for item in items:
            footprint = self.footprints.get(item.nodeid)
            if footprint is not None and footprint.passes and mutant.function in footprint.calls:
                order = (-noticed.get(item.nodeid, 0), -near.get(item.nodeid, 0), footprint.cost, item.nodeid)
                calling.append((order, footprint.cost, item))
        calling.sort(key=lambda entry: entry[0])
        kept: list[pytest.Item] = []
        spent = 0.0
        for _, cost, item in calling:
            if kept and spent + cost > self.budget:
                break
            kept.append(item)
            spent += cost
        return kept

    def _try(self, mutant: Mutant, tests: Sequence[pytest.Item], note: Path) -> int:
        """Put the mutant in place, in this copy; run tests until one fails."""
        for function in self.places[mutant.function]:
            function.__code__ = mutant.changed
        for at, item in enumerate(tests):
            limit = int(time.process_time() + SPARE + SLOWER_MAX * self.footprints[item.nodeid].cost)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            if not self._passes(item, tests[at + 1] if at + 1 < len(tests) else None):
                note.write_text(self.failed[0], encoding="utf-8")
                return NOTICED
        note.write_text(f"{len(tests)} tests pass", encoding="utf-8")
        return 0

    def _collect(self, running: dict[int, tuple[Mutant, Path, float]]) -> None:
        """Take the results of copies that ended; end those that only wait."""
        for pid, (mutant, note, began) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended == 0:
                if time.monotonic() - began > PATIENCE:
                    os.kill(pid, 9)
                continue
            del running[pid]
            ended_how = f"ends by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "the copy broke off"
            told = note.read_text(encoding="utf-8") if note.exists() else ended_how
            lives = os.WIFEXITED(status) and os.WEXITSTATUS(status) != NOTICED
            if not lives:
                for place in (mutant.function, mutant.path):
                    counts = self.noticed.setdefault(place, {})
                    counts[told] = counts.get(told, 0) + 1
            self._tell(Result(mutant, lives=lives, why=told))
        time.sleep(0.02)

    def _tell(self, result: Result) -> None:
        self.results.append(result)
        state = "SURVIVED" if result.lives else "killed"
        at = f"{len(self.results)}/{len(self.chosen)}"
        print(f"{at} {state} {result.mutant.shown} ({result.why})", flush=True)


def _live_functions() -> Iterator[FunctionType]:
    """Yield all functions there are of the sources."""
    prefix = str(SOURCES) + os.sep
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(prefix):
            yield thing


def _copy(what: Any) -> int:
    """Do something in a copy of this process, silently; return the copy's number."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = BROKEN_OFF
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        status = what()
    finally:
        os._exit(status)


def main() -> int:
    """Try a sample; print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=1, help="mutants per module (default 1)")
    parser.add_argument("--only", default="", help="modules whose path has this in it")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default 2)")
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests per mutant (default 60)")
    parser.add_argument("--map", type=Path, help="keep here which test calls what (take it away after changes)")
    parser.add_argument("--again", type=Path, help="only those that survived, by the output of an earlier run")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="tests to try them with")
    parser.add_argument("--list", action="store_true", help="print the sample and try nothing")
    args = parser.parse_args()
    os.chdir(ROOT)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # copies of a process with threads are trouble
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    chosen = sample(args.seed, args.each, args.only, survived(args.again) if args.again else None)
    if args.list:
        for mutant in chosen:
            print(mutant.shown)
        return 0
    trials = Trials(chosen=chosen, jobs=args.jobs, budget=args.budget, map_file=args.map)
    options = ["-q", "-s", "-m", "not slow and not apiserver and not e2e", "--tb=no", "--no-summary"]
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = scratch
        pytest.main([*options, "--hypothesis-seed=1", *args.tests], plugins=[trials])
    if len(trials.results) != len(chosen):
        return 2
    survivors = [result for result in trials.results if result.lives]
    share = len(survivors) / len(chosen) if chosen else 0.0
    print(f"\n{len(chosen)} mutants tried, {len(survivors)} survived ({share:.1%})")
    for result in sorted(survivors, key=lambda result: (result.mutant.path, result.mutant.line)):
        print(f"  {result.mutant.shown} ({result.why})")
    return 1 if share > SURVIVORS_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
