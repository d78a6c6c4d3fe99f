"""Every command that README and the pages in `PAGES` show can be typed: it is run, or at least understood.

A command that reads a cluster runs on a small capture that the test makes. One that writes to a cluster, needs a
network or takes minutes is only parsed: other tests run it.
"""

import contextlib
import gzip
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dovetail.cli.main import build_parser, main
from tests.paths import ROOT

WAYS_IN = ("docs/why.md", "docs/try.md", "docs/run-it.md")
PAGES = ("README.md", "docs/getting-started.md", "docs/cli.md", "docs/troubleshooting.md", "docs/clouds.md", *WAYS_IN)
NODE = "node-a"
WORDS = {"NODE": NODE, "FIELD=VALUE": "consolidateAfter=5m", "SHELL": "bash", "SCENARIO": "issue-7146"}
ON_FILES = ("plan", "explain", "blockers", "budgets", "place", "validate", "whatif", "catalog", "crds", "diff")
QUICK = {"whatif": ["--for", "30m", "--seeds", "1"]}
SYNOPSIS = re.compile(r"\[|\.\.\.|RECORDING|\bFILE\b|\bPOOL\b|\bDIR\b|\bA B\b|\bCOMMAND\b|\|[a-z]")


def _commands(page: str) -> Iterator[str]:
    """Yield what a page shows after `dovetail`, in its code blocks and in its sentences, without comments and pipes."""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    inline = [words for words in re.findall(r"`(dovetail [^`\n]+)`", text) if " -" in words or "/" in words]
    shown = [line.removeprefix("$ ") for line in lines] + inline  # others in sentences only name a command
    for line in shown:
        line = re.sub(r"\s+#.*$", "", line)
        for part in re.split(r"\s[|]\s", line):
            words = re.sub(r"\s>\s.*$", "", part).strip()
            if words.startswith("dovetail ") and not SYNOPSIS.search(words):
                yield words


CASES = sorted({(page, command) for page in PAGES for command in _commands(page)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the files that the pages name: captures, manifests, folders."""
    made = tmp_path_factory.mktemp("typed")
    items = list(yaml.safe_load_all((ROOT / "docs" / "examples" / "two-nodes.yaml").read_text()))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    for name in ("cluster.json", "captures/eu/cluster.json", "captures/us/cluster.json"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    for name in ("cluster.json.gz", "snapshot.json.gz"):
        (made / name).write_bytes(gzip.compress(text.encode()))
    pool = next(item for item in items if item["kind"] == "NodePool")
    pool["spec"]["template"]["spec"]["requirements"] = []
    for name in ("nodepools", "manifests"):
        (made / name).mkdir()
        (made / name / "pool.yaml").write_text(yaml.safe_dump(pool))
    return made


def test_the_pages_show_commands() -> None:
    """The search finds them: most pages show several."""
    assert len(CASES) > 25
    assert {page for page, _ in CASES} == set(PAGES)


@pytest.mark.parametrize(("page", "command"), CASES, ids=[f"{page}: {command}" for page, command in CASES])
def test_a_command_of_the_docs_runs(page: str, command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that only reads ends with status 0; any other one is understood by the command line."""
    monkeypatch.chdir(folder)
    words = [WORDS.get(word, word) for word in shlex.split(command)[1:]]
    if words == ["--version"]:
        with contextlib.suppress(SystemExit):
            main(words)
        return
    build_parser(words).parse_args(words)
    if words[0] in ON_FILES and "-" not in words:
        live = words[0] not in ("validate", "catalog", "crds") and "-f" not in words
        assert main([*words, *(["-f", "cluster.json.gz"] if live else []), *QUICK.get(words[0], [])]) == 0
