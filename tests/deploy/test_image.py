"""The image's build stage, run with the files that the Dockerfile copies, into a temporary folder."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail import __version__
from dovetail.cli.main import COMMANDS
from tests.paths import ROOT
from tests.support.sizes import size

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("image")]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
AWAY = ("Could not find a version", "No matching distribution", "NewConnectionError", "ConnectTimeout", "getaddrinfo")


def _copied() -> list[tuple[str, str]]:
    """Return what the build stage copies from the project, with the targets."""
    stage = DOCKERFILE.split("FROM ")[1]
    rows = [line.split()[1:] for line in stage.splitlines() if line.startswith("COPY ")]
    return [(source, row[-1]) for row in rows for source in row[:-1]]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run the build stage and return the folder that the second stage copies."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("image") / "dovetail"
    for name, place in _copied():
        goal = source / place / (Path(name).name if place.endswith("/") else "")
        goal.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, goal, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, goal)
    step = re.search(r"^RUN (\S+) build /opt/dovetail$", DOCKERFILE, re.MULTILINE)
    assert step is not None
    done = subprocess.run(
        [step[1], "build", target],
        cwd=source,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 and any(word in done.stderr for word in AWAY) and "HASH" not in done.stderr.upper():
        pytest.skip("the packages of the lock file can't be had here: the image's steps were not tried")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(__version__)
    yield target
    shutil.rmtree(target)


def _run(image: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{image}/bin:/usr/bin:/bin"}
    return subprocess.run(
        [image / "bin" / "dovetail", *arguments], capture_output=True, text=True, check=False, env=environment, cwd=cwd
    )


def test_the_image_has_what_the_lock_file_lists_and_no_more(image: Path) -> None:
    """The image has Dovetail and the pinned packages in their pinned versions; no pip, test tools or build tools."""
    listing = (
        "import importlib.metadata as m; print(*sorted(f'{d.name.lower()}=={d.version}' for d in m.distributions()))"
    )
    done = subprocess.run([image / "bin" / "python", "-c", listing], capture_output=True, text=True, check=True)
    have = {re.sub(r"[-_.]+", "-", entry) for entry in done.stdout.split()}
    lock = (ROOT / "requirements-runtime.lock").read_text()
    pinned = {re.sub(r"[-_.]+", "-", entry.lower()) for entry in re.findall(r"^([^\s=]+==[^\s;]+)", lock, re.MULTILINE)}
    ours = re.sub(r"[-_.]+", "-", f"dovetail-k8s=={__version__}")
    assert ours in have
    assert have - {ours} <= pinned
    assert {entry.split("==")[0] for entry in have} >= {"aiohttp", "boto3", "msgspec", "numpy", "pyyaml", "tzdata"}
    assert not list((image / "bin").glob("pip*"))


def test_every_command_is_there_without_extras(image: Path) -> None:
    """Each command prints its help if boto3 and Dask can't be imported: `pip install .` alone provides all commands."""
    hide = "import sys; sys.modules.update(dict.fromkeys(('boto3', 'botocore', 'distributed', 'dask')));"
    for entry in COMMANDS:
        code = f"{hide} sys.argv = ['dovetail', '{entry.name}', '--help']; from dovetail.cli.main import entry; entry()"
        done = subprocess.run([image / "bin" / "python", "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (entry.name, done.stderr)
        assert "examples:" in done.stdout, entry.name


def test_crds_and_versions_come_out_of_the_image(image: Path) -> None:
    """`dovetail crds` prints both definitions, `--version` the version."""
    assert _run(image, "--version").stdout.split()[-1] == __version__
    assert _run(image, "crds").stdout.count("kind: CustomResourceDefinition") == 2


def test_the_demo_runs_in_the_image(image: Path, tmp_path: Path) -> None:
    """`dovetail demo` works with only the content of the image, and writes its page (`make test`: a short run)."""
    if size(test=0, ci=1, long=1):
        done = _run(image, "demo", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "dovetail-demo.html").stat().st_size > 1000
    else:
        done = _run(image, "simulate", "issue-7146", "--until", "1m", "-o", "html", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout) > 1000


def test_the_builder_gets_what_it_copies() -> None:
    """The build context contains everything that the build stage copies."""
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert {f"!{source}" for source, _ in _copied()} == {line for line in ignored if line.startswith("!")}


def test_the_image_is_nobody_and_observes_by_default() -> None:
    """The second stage runs as a numeric user that is not root, and only observes by default."""
    last = DOCKERFILE.split("FROM ")[-1]
    user = re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert user is not None
    assert int(user[1]) > 0
    assert 'CMD ["run", "--observe"]' in last
    assert "RUN" not in last, "the second stage copies, and does nothing else"
