"""One question to several clusters: `--context a,b,c`, or several folders of captures, one for each cluster.

Each cluster is asked as if it were alone; one that can't be asked becomes a row that says why. JSON:
`{"clusters": [{"cluster", ... as for one, or "error"}], "total": {...}}`.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, Self, TypeVar

import msgspec

from dovetail.api.findings import InputError
from dovetail.cli.output import print_document, print_lines, print_page

if TYPE_CHECKING:
    from dovetail.live.kubernetes.client import ApiClient

_PATIENCE_SECONDS: Final = 15.0
_AT_ONCE: Final = 16


class Figures(Protocol):
    """The figures of one cluster, which can be added up and shown in a table."""

    TITLE: ClassVar[str]
    HEAD: ClassVar[tuple[str, ...]]

    def plus(self, other: Self) -> Self:
        """Return the sum."""

    def to_dict(self) -> dict[str, Any]:
        """Return them for the JSON document."""

    def cells(self) -> tuple[str, ...]:
        """Return them for the table."""


F = TypeVar("F", bound=Figures)


class ClusterAnswer(msgspec.Struct, Generic[F], frozen=True, kw_only=True):
    """What one cluster answered: its document and its figures; or why it did not."""

    cluster: str
    document: dict[str, Any] | None = None
    figures: F | None = None
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the JSON document."""
        return {"cluster": self.cluster, **(self.document or {}), **({"error": self.error} if self.error else {})}


def clusters_of(args: argparse.Namespace) -> list[argparse.Namespace]:
    """Return the options of each cluster, its name in `cluster`; empty if the options name only one."""
    files, contexts = getattr(args, "files", None) or [], getattr(args, "context", None) or ""
    if "," in contexts:
        names = [word.strip() for word in contexts.split(",")]
        if "" in names or len(set(names)) < len(names):
            raise InputError(f'--context is "{contexts}"; write different contexts with commas, such as a,b,c')
        if files:
            raise InputError("--context names live clusters and -f files; leave one of them out")
        return [_with(args, name, context=name) for name in names]
    if len(files) > 1 and all(Path(name).is_dir() for name in files):
        return named_by_path(args, files)
    return []


def named_by_path(args: argparse.Namespace, paths: Sequence[str]) -> list[argparse.Namespace]:
    """Return the options of each cluster, one a path."""
    return [_with(args, name, files=[path]) for name, path in zip(_short(paths), paths, strict=True)]


def _with(args: argparse.Namespace, cluster: str, **changes: Any) -> argparse.Namespace:
    found = copy(args)
    found.last = False
    for key, value in {"cluster": cluster, **changes}.items():
        setattr(found, key, value)
    return found


def _short(paths: Sequence[str]) -> list[str]:
    """Return the last part of each path as its name, or whole paths if those are not different."""
    names = [Path(path).resolve().name for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


def answers_of(
    clusters: Sequence[argparse.Namespace],
    ask: Callable[[argparse.Namespace], tuple[dict[str, Any], F]],
    first: Callable[[Sequence[argparse.Namespace]], Mapping[str, str]] = lambda _: {},
) -> list[ClusterAnswer[F]]:
    """Ask every cluster; those that don't answer are found out at once, side by side.

    `first` is done before with all that can be reached together; it returns why some fail, by cluster.
    """
    from concurrent.futures import ThreadPoolExecutor

    live = [args for args in clusters if not getattr(args, "files", None)]
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        problems = dict(zip((args.cluster for args in live), pool.map(_problem, live), strict=True))
    problems |= first([args for args in clusters if not problems.get(args.cluster)])
    found: list[ClusterAnswer[F]] = []
    for args in clusters:
        error = problems.get(args.cluster, "")
        if not error:
            print(f"{args.cluster}:", file=sys.stderr)
            try:
                document, figures = ask(args)
            except InputError as problem:
                error = str(problem)
            else:
                found.append(ClusterAnswer(cluster=args.cluster, document=document, figures=figures))
        if error:
            found.append(ClusterAnswer(cluster=args.cluster, error=error))
    return found


def _problem(args: argparse.Namespace) -> str:
    """Return why a live cluster can't be asked; empty if it can."""
    import asyncio

    from dovetail.cli.live_cluster import with_client

    async def look(client: "ApiClient") -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await client.request("GET", "/version", tries=1)

    try:
        with_client(args, look)
    except InputError as error:
        return str(error)
    except TimeoutError:
        return f"the API server does not answer within {_PATIENCE_SECONDS:g} s; check the kubeconfig's address"
    return ""


def print_many(args: argparse.Namespace, answers: Sequence[ClusterAnswer[F]], none: F) -> int:
    """Print all answers in the form that was asked for; return 2 if no cluster answered. `none`: no figures at all."""
    figures = [answer.figures for answer in answers if answer.figures is not None]
    total = none
    for each in figures:
        total = total.plus(each)
    if args.output in ("json", "yaml"):
        counted = {"clusters": len(answers), "answered": len(figures), **total.to_dict()}
        print_document({"clusters": [answer.to_dict() for answer in answers], "total": counted}, args.output)
    elif args.output == "html":
        print_page(_page(answers, total))
    else:
        print_lines(_lines(answers, total))
    return 0 if figures else 2


def _lines(answers: Sequence[ClusterAnswer[F]], total: F) -> list[str]:
    from dovetail.report.table import paragraph, text_table
    from dovetail.report.words import safe

    rows = [[answer.cluster, *_cells(answer, total)] for answer in answers]
    rows.append([_in_all(answers), *total.cells()])
    head = ["CLUSTER", *(word.upper() for word in total.HEAD)]
    numbers = [place for place, cell in enumerate(rows[-1]) if place and not cell[:1].isalpha()]
    lines = text_table(head, rows, right=numbers, flexible=(0, len(head) - 1))
    for answer in answers:
        if answer.error:
            lines += ["", *paragraph(safe(f"{answer.cluster}: no answer: {answer.error}", 1000))]
    return lines


def _cells(answer: ClusterAnswer[F], total: F) -> tuple[str, ...]:
    if answer.figures is not None:
        return answer.figures.cells()
    return tuple("-" for _ in total.HEAD)


def _in_all(answers: Sequence[ClusterAnswer[F]]) -> str:
    answered = sum(not answer.error for answer in answers)
    return f"all {len(answers)}" if answered == len(answers) else f"{answered} of {len(answers)}"


def _page(answers: Sequence[ClusterAnswer[F]], total: F) -> str:
    from dovetail import __version__
    from dovetail.report import page as html

    rows = []
    for answer in answers:
        why = f"<p>no answer: {html.text(answer.error, 600)}</p>" if answer.error else ""
        rows.append([f"{html.name(answer.cluster)}{why}", *map(html.text, _cells(answer, total))])
    rows.append([f"<b>{html.text(_in_all(answers))}</b>", *(f"<b>{html.text(cell)}</b>" for cell in total.cells())])
    numbers = [place for place, cell in enumerate(("", *total.cells())) if place and not cell[:1].isalpha()]
    table = html.table(["cluster", *total.HEAD], rows, numbers)
    lead = "Each cluster was asked alone; the last row is the sum of those that answered."
    return html.page(total.TITLE, lead, table, f"Dovetail {__version__}.")
