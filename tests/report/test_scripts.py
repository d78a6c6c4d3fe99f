"""The pages' script: joined without a tool, typed by the schemas, checked and tested by Node where it is there."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dovetail.report import page as html
from dovetail.report.scripts import hash_of, ordered, script, source, style
from tests.paths import ROOT

WEB = ROOT / "src" / "dovetail" / "report" / "web"
TESTS = ROOT / "web"
_TOP_LEVEL = re.compile(r"^(?:export )?(?:async )?(?:function|const|let|class) ([A-Za-z_]\w*)", re.MULTILINE)


def test_every_module_is_used_and_no_name_is_taken_twice() -> None:
    """The joined script has all modules of the folder, and their top-level names don't collide."""
    modules = ordered()
    assert sorted(modules) == sorted(path.stem for path in WEB.glob("*.js"))
    names = [name for module in modules for name in _TOP_LEVEL.findall(source(module))]
    assert [name for name in names if names.count(name) > 1] == []
    assert not re.search(r"^(import|export) ", script(), re.MULTILINE)


def test_markup_is_never_written_by_the_script() -> None:
    """The script never turns text into markup or code."""
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
        assert word not in script(), word


@pytest.mark.parametrize("hostile", ["</script><script>alert(1)</script>", "<!--", "\u2028", "&lt;", "]]>", "{view}"])
def test_a_document_can_not_leave_its_element(hostile: str) -> None:
    """The data element holds no markup and decodes to the original data."""
    element = html.embedded({"x": hostile})
    inner = element.split(">", 1)[1].rsplit("</script>", 1)[0]
    assert "<" not in inner
    assert inner.isascii()
    assert json.loads(inner) == {"x": hostile}


def test_a_large_document_is_packed() -> None:
    """The same document always compresses to the same bytes."""
    document = {"rows": ["default-pool-node-17 "] * 40_000}
    first = html.embedded(document)
    assert 'data-encoding="gzip"' in first
    assert len(first) < 20_000
    assert html.embedded(document) == first


def test_the_policy_names_what_the_page_holds() -> None:
    """The policy allows script and style by the hash of the page's own content, and nothing else."""
    made = html.page("t", "", "", "f", document={"kind": "none"})
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', made)
    assert policy
    inline = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    assert inline == [script()]
    assert hash_of(script()) in policy[1]
    assert hash_of(style()) in policy[1]
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    assert not re.search(r'\sstyle="|\son[a-z]+="', made.split("</head>")[1].split('id="document"')[0])


def test_the_types_are_those_of_the_schemas() -> None:
    """types.d.ts is what tools/build_web_types.py writes."""
    spec = importlib.util.spec_from_file_location("build_web_types", ROOT / "tools" / "build_web_types.py")
    assert spec is not None
    assert spec.loader is not None
    tool: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert (WEB / "types.d.ts").read_text() == tool.build()


def test_the_lock_file_names_no_host() -> None:
    """The package files name no registry: the reader chooses the source."""
    locked = (TESTS / "package-lock.json").read_text()
    assert "resolved" not in locked
    assert not re.search(r"https?://(?!opencollective|github|feross|www\.patreon|dotenvx)", locked)


def _node(*arguments: str) -> subprocess.CompletedProcess[str]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node here: install the package nodejs")
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(
        [node, *arguments], cwd=TESTS, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_the_scripts_own_tests_pass() -> None:
    """Every test of web/test passes under Node's own runner."""
    done = _node("--test", "test/")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_script_has_no_type_error() -> None:
    """The pinned TypeScript compiler finds nothing in the script and its tests."""
    compiler = TESTS / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.is_file():
        pytest.skip("no TypeScript here: run `npm ci` in web/")
    done = _node(str(compiler), "--project", "tsconfig.json")
    assert done.returncode == 0, done.stdout


def test_the_script_is_read_by_node() -> None:
    """The joined script is one valid program."""
    joined = Path(os.environ.get("TMPDIR", "/tmp")) / f"dovetail-script-{os.getpid()}.js"
    joined.write_text(script())
    try:
        done = _node("--check", str(joined))
    finally:
        joined.unlink()
    assert done.returncode == 0, done.stderr
