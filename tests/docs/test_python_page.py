"""docs/python.md: its examples run, and it lists the whole interface."""

import doctest
import re
import subprocess
import sys

import pytest

import dovetail
from tests.paths import ROOT

PAGE = ROOT / "docs" / "python.md"
CONTRACT = (
    "load_cluster",
    "load_catalogue",
    "load_settings",
    "Question",
    "Decider",
    "plan_round",
    "explain",
    "plan_to_end",
    "load_scenario",
    "run_scenario",
    "__version__",
)


def test_the_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example prints what the page says, in order, in one session."""
    monkeypatch.chdir(PAGE.parent)
    text = PAGE.read_text()
    source = "\n".join(re.findall(r"```pycon\n(.*?)```", text, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(source, {}, PAGE.name, str(PAGE), 0)
    said: list[str] = []
    outcome = doctest.DocTestRunner().run(test, out=said.append)
    assert not outcome.failed, "".join(said)
    assert outcome.attempted > 20


def test_the_page_lists_the_interface() -> None:
    """The table has each name that the contract promises, and each name in the table exists."""
    named = re.findall(r"^\| `(\w+)", PAGE.read_text(), re.MULTILINE)
    assert set(CONTRACT) <= set(named)
    for name in named:
        assert getattr(dovetail, name) is not None
        assert name in dovetail.__all__
        assert name in dir(dovetail)


def test_every_name_is_loaded_where_it_says() -> None:
    """`__all__` and the table of places agree, and an unknown name is an AttributeError."""
    assert {*dovetail._WHERE, "__version__"} == set(dovetail.__all__)
    assert all(getattr(dovetail, name) for name in dovetail.__all__)
    with pytest.raises(AttributeError, match="no attribute 'plan_rounds'"):
        dovetail.plan_rounds  # noqa: B018


def test_the_import_alone_loads_nothing() -> None:
    """`import dovetail` loads no other module of the package, and no numpy."""
    code = (
        "import sys, dovetail; dir(dovetail); "
        "print(sorted(n for n in sys.modules if n.startswith(('dovetail.', 'numpy'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
