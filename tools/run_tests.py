"""Runs the tests; those that wait on real programs and failed among the others run once more, alone.

Tests on a real control plane or in a browser share two cores with everything else and with real timeouts. Such a test
may fail because the machine was busy. It gets a second run with nothing beside it, and both runs are printed. All other
tests have no such excuse: one that fails, fails the run. Arguments go to pytest.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.fixtures import FAILED_FILE

AT_MOST = 4
"""More failures than this are no accident."""


def run(arguments: list[str], failed: Path) -> int:
    """Run pytest and return its exit status; the failed tests are written to a file."""
    failed.unlink(missing_ok=True)
    environment = {**os.environ, FAILED_FILE: str(failed)}
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], env=environment, check=False).returncode


def second_run(failed: Path) -> list[str]:
    """Return the tests that run once more; none if one of those that failed has no excuse, or if there are too many."""
    lines = [line.split("\t") for line in failed.read_text().splitlines()] if failed.exists() else []
    is_excused = 0 < len(lines) <= AT_MOST and all(kind == "real" for kind, _ in lines)
    return sorted({name for _, name in lines}) if is_excused else []


def main(arguments: list[str]) -> int:
    """Run the tests and return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        failed = Path(folder, "failed")
        status = run(arguments, failed)
        again = second_run(failed) if status == 1 else []
        if not again:
            return status
        print("\nThese tests wait on real programs and failed beside the others; once more, alone:")
        print("\n".join(f"  {name}" for name in again), flush=True)
        status = run(again, failed)
        print("Passed alone: if it happens again, mend the test." if status == 0 else "Failed again.", flush=True)
        return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
