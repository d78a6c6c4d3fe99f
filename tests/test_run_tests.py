"""What `make test` does with tests that fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

_TWICE = """
import pathlib, pytest
seen = pathlib.Path(__file__).with_name("seen")

@pytest.mark.{mark}
def test_that_passes_the_second_time():
    first = not seen.exists()
    seen.touch()
    assert not first
"""


@pytest.mark.parametrize(
    ("mark", "status", "said"),
    [
        ("e2e", 0, "Passed alone"),
        ("browser", 0, "Passed alone"),
        ("slow", 1, ""),
    ],
)
def test_only_tests_that_wait_on_real_programs_run_again(tmp_path: Path, mark: str, status: int, said: str) -> None:
    """A test in a browser or on a cluster gets a second run alone; any other fails the run at once."""
    Path(tmp_path, "test_it.py").write_text(_TWICE.format(mark=mark))
    ran = _run(tmp_path)
    assert ran.returncode == status, ran.stdout
    assert (said in ran.stdout) if said else ("once more" not in ran.stdout)


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    """The second run decides."""
    Path(tmp_path, "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.e2e\n@pytest.mark.xdist_group('cluster')\ndef test_wrong():\n    assert False\n"
    )
    ran = _run(tmp_path, "-n", "1", "--dist", "loadgroup")
    assert ran.returncode == 1
    assert "Failed again" in ran.stdout


def test_many_failures_are_no_accident(tmp_path: Path) -> None:
    """Five failures on a real cluster are not tried again."""
    wrong = "@pytest.mark.e2e\n@pytest.mark.parametrize('n', range(5))\ndef test_wrong(n):\n    assert False\n"
    Path(tmp_path, "test_it.py").write_text(f"import pytest\n\n{wrong}")
    ran = _run(tmp_path)
    assert ran.returncode == 1
    assert "once more" not in ran.stdout


def _run(folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    Path(folder, "pytest.ini").write_text("[pytest]\nmarkers =\n  e2e\n  browser\n  slow\n")
    command = [sys.executable, "-m", "tools.run_tests", "-p", "tests.support.fixtures", *more]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(ROOT / "src")))
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
