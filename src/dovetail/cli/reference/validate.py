"""`dovetail validate`: checks NodePool and NodeClaim manifests as the API server and the controller would."""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dovetail.api.findings import Finding, InputError, Remark, Severity, one_line
from dovetail.cli.inputs import add_output_option

_LINE: Final = re.compile(r"\bline (\d+)")
_EPILOG: Final = """\
One line for each finding: FILE: KIND/NAME: error|warning: FIELD (VALUE): what is wrong; what to write instead.
Other kinds are passed over. Folders are searched for *.yaml, *.yml and *.json.
Exit status: 0 fine (warnings alone leave it 0), 1 something would be refused, 2 a file can't be read.

examples:
  dovetail validate nodepool.yaml
  dovetail validate manifests/ more/pool.json
  kubectl get nodepools -o yaml | dovetail validate -
  dovetail validate manifests/ -o json
  dovetail validate manifests/ -o github     annotations of a pull request
"""


@dataclass(frozen=True, slots=True)
class Located:
    """A finding, and where its object stands."""

    file: str
    where: str
    name: str
    finding: Finding


@dataclass(slots=True)
class Tally:
    """What was looked at."""

    files: int = 0
    checked: int = 0
    passed_over: int = 0


def register(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "validate",
        help="check NodePool and NodeClaim manifests before they are applied",
        description="Checks NodePool and NodeClaim manifests as the API server and the controller would.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", metavar="FILE", nargs="+", help="manifests, folders of them, or - for standard input")
    add_output_option(parser, ("text", "json", "github"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check every file and say what was found; one that can't be read doesn't keep the others from being checked."""
    from dovetail.api.reading.documents import NOTHING_LISTED
    from dovetail.api.reading.folders import MANIFEST_SUFFIXES, files_of

    tally, located, unreadable = Tally(), [], []
    for path in (file.path for file in files_of(args.paths, MANIFEST_SUFFIXES)):
        try:
            located += _findings(path, tally)
        except InputError as problem:
            unreadable.append((path, one_line(f"{_name(path)}: {problem}")))
    if not tally.checked and not tally.passed_over and not unreadable:
        unreadable.append(("", f"{', '.join(map(_name, args.paths))}: {NOTHING_LISTED}"))
    if args.output == "json":
        print(json.dumps(_document(located, tally), indent=2))
    elif args.output == "github":
        for entry in located:
            print(_annotation(entry))
        for path, sentence in unreadable:
            print(_unreadable(path, sentence))
    else:
        for entry in located:
            print(one_line(f"{entry.file}: {entry.name}: {entry.finding.line()}"))
    for _, sentence in unreadable:
        print(f"dovetail: {sentence}", file=sys.stderr)
    errors = sum(1 for entry in located if entry.finding.severity is Severity.ERROR)
    if tally.checked or not unreadable:
        _summary(tally, errors, len(located) - errors)
    if unreadable:
        return 2
    return 1 if errors else 0


def _findings(path: str, tally: Tally) -> list[Located]:
    from dovetail.api.manifests.shape import warning
    from dovetail.api.manifests.validate import VALIDATED_KINDS, validate_manifest
    from dovetail.api.reading.documents import MANIFEST_MAX, NOTHING_THERE, is_empty_list, read_input, split_documents

    found: list[Located] = []
    tally.files += 1
    empty = True
    data = read_input(path, MANIFEST_MAX)
    for document in split_documents(data):
        empty = False
        head = document.head
        if head.kind not in VALIDATED_KINDS or not head.api_version.startswith("karpenter.sh/"):
            tally.passed_over += 1
            continue
        tree = document.as_tree()
        name = _object_name(head.kind, tree)
        repeats = [
            warning(key, Remark(f"line {line}"), "is given twice, and only the last one counts", "keep one")
            for key, line in document.duplicates
        ]
        try:
            findings = (*repeats, *validate_manifest(tree))
        except RecursionError:
            raise InputError(f"{name} is nested too deep") from None
        tally.checked += 1
        found += [Located(_name(path), document.where, name, finding) for finding in findings]
    if empty and not is_empty_list(data):
        raise InputError(NOTHING_THERE)
    return found


def findings_in(paths: Sequence[str]) -> list[Located]:
    """Return what is wrong with manifests; raise InputError for one that can't be read."""
    from dovetail.api.reading.folders import MANIFEST_SUFFIXES, files_of

    tally, located = Tally(), []
    for file in files_of(paths, MANIFEST_SUFFIXES):
        try:
            located += _findings(file.path, tally)
        except InputError as problem:
            raise InputError(f"{_name(file.path)}: {problem}") from None
    return located


def _annotation(entry: Located) -> str:
    """Return a finding as a workflow command of GitHub, which shows it beside the line."""
    from dovetail.api.reading.field_lines import line_of

    place = f"file={_escaped(entry.file, of_property=True)},line={line_of(entry.file, entry.name, entry.finding.path)}"
    title = _escaped(entry.name, of_property=True)
    return f"::{entry.finding.severity.value} {place},title={title}::{_escaped(entry.finding.sentence())}"


def _unreadable(path: str, sentence: str) -> str:
    """Return that a file can't be read as a workflow command, beside the line that the sentence names."""
    line = _LINE.search(sentence)
    place = f"file={_escaped(path, of_property=True)},line={line[1] if line else 1}," if path not in ("", "-") else ""
    return f"::error {place}title=dovetail validate::{_escaped(sentence)}"


def _escaped(text: str, *, of_property: bool = False) -> str:
    """Escape text for a workflow command: a name must not be able to end it or to begin another."""
    for letter, code in (
        ("%", "%25"),
        ("\r", "%0D"),
        ("\n", "%0A"),
        *(((":", "%3A"), (",", "%2C")) if of_property else ()),
    ):
        text = text.replace(letter, code)
    return one_line(text)


def _object_name(kind: str, tree: Any) -> str:
    meta = tree.get("metadata") if isinstance(tree, dict) else None
    name = meta.get("name") if isinstance(meta, dict) else None
    return f"{kind}/{name}" if isinstance(name, str) and name else kind


def _name(path: str) -> str:
    return "standard input" if path == "-" else path


def _document(located: list[Located], tally: Tally) -> dict[str, Any]:
    return {
        "files": tally.files,
        "checked": tally.checked,
        "passedOver": tally.passed_over,
        "findings": findings_document(located),
    }


def findings_document(located: Sequence[Located]) -> list[dict[str, Any]]:
    """Return findings as JSON."""
    return [
        {
            "file": entry.file,
            "object": entry.name,
            "where": entry.where,
            "severity": entry.finding.severity.value,
            "path": entry.finding.path,
            "value": entry.finding.value,
            "message": entry.finding.message,
            "remedy": entry.finding.remedy,
        }
        for entry in located
    ]


def _summary(tally: Tally, errors: int, warnings: int) -> None:
    passed = f", {_count(tally.passed_over, 'object')} of other kinds passed over" if tally.passed_over else ""
    print(
        f"checked {_count(tally.checked, 'object')} in {_count(tally.files, 'file')}{passed}: "
        f"{_count(errors, 'error')}, {_count(warnings, 'warning')}",
        file=sys.stderr,
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
