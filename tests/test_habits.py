"""The habits that keep the house in order: hooks before a commit, and unit tests that need little."""

import signal
import subprocess
import sys

import yaml

from tests.paths import ROOT


def _recipe(target: str) -> list[str]:
    lines = (ROOT / "Makefile").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"{target}:"))
    return [line.strip() for line in lines[start + 1 : start + 12] if line.startswith("\t")]


def test_hooks_run_what_make_lint_runs() -> None:
    """Every linter of `make lint` is a hook: what a commit passes, `make lint` passes."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]]
    tools = ("ruff check", "ruff format", "mypy", "lint-imports")
    for tool in tools:
        assert any(entry.startswith(f".venv/bin/{tool}") for entry in entries), tool
        assert any(line.startswith(f"$(BIN)/{tool}") for line in _recipe("lint")), tool


def test_hooks_fetch_nothing() -> None:
    """All hooks are local, so that a commit needs no network and the lock file decides the versions."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {repo["repo"] for repo in config["repos"]} == {"local"}


def test_unit_tests_need_no_cryptography() -> None:
    """The fixtures that every test loads, and the unit tests, import without `cryptography`."""
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "import pytest\n"
        "sys.exit(pytest.main(['--collect-only', '-qq', 'tests/model', 'tests/decide', 'tests/lifecycle']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_programs_of_a_test_run_hear_ctrl_c() -> None:
    """A run that its shell started with ignored or blocked signals starts programs that heed them."""
    inner = (
        "import signal, sys\n"
        "heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "heard &= signal.getsignal(signal.SIGHUP) is signal.SIG_DFL\n"
        "sys.exit(not heard or bool(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    )
    code = (
        "import signal, subprocess, sys\n"
        "import tests.conftest\n"
        f"heard = subprocess.run([sys.executable, '-c', {inner!r}]).returncode == 0\n"
        "sys.exit(not heard or tests.conftest.reset_signals() != [])"
    )

    def as_in_the_background() -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, preexec_fn=as_in_the_background, check=False)
    assert done.returncode == 0
