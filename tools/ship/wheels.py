"""The wheel and the sdist, and the wheels that they need: for any platform and Python, pinned by hash."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import requires
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.ship import ROOT

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "linux-amd64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "linux-arm64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "darwin-amd64": tuple(f"macosx_{version}_x86_64" for version in ("14_0", "13_0", "11_0", "10_15", "10_13", "10_9")),
    "darwin-arm64": tuple(f"macosx_{version}_arm64" for version in ("14_0", "13_0", "12_0", "11_0")),
}


def version(root: Path = ROOT) -> str:
    """Return the version that pyproject.toml states."""
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def build(dist: Path, root: Path = ROOT) -> list[Path]:
    """Build the wheel and the sdist."""
    dist.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(dist)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    return sorted(dist.glob(f"dovetail_k8s-{version(root)}*"))


def needed(extras: Sequence[str] = (), python: str = "") -> set[str]:
    """Return the distributions that `dovetail-k8s[extras]` needs, by what the installed ones declare.

    `python`: for this version of Python; by default the one that runs this.
    """
    environment = {"python_version": python, "python_full_version": f"{python}.0"} if python else {}
    found: set[str] = set()
    waiting = [("dovetail-k8s", tuple(extras))]
    while waiting:
        name, wanted = waiting.pop()
        for text in requires(name) or ():
            requirement = Requirement(text)
            marker = requirement.marker
            met = marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in ("", *wanted))
            child = canonicalize_name(requirement.name)
            if met and child not in found:
                found.add(child)
                waiting.append((child, tuple(requirement.extras)))
    return found


def lock(names: set[str], python: str, root: Path = ROOT) -> str:
    """Return the part of the runtime's lock file that pins these distributions for a version of Python.

    pip would evaluate the markers for the Python that runs it, so they are evaluated here and left out.
    """
    kept, found = [], set()
    for entry in re.split(r"(?m)^(?=\S)", (root / "requirements-runtime.lock").read_text()):
        head, _, rest = entry.partition("\n")
        pinned, _, marker = head.rstrip(" \\").partition(";")
        name = canonicalize_name(pinned.partition("==")[0].strip())
        environment = {"python_version": python, "python_full_version": f"{python}.0"}
        if name in names and (not marker or Marker(marker).evaluate(environment)):
            kept.append(f"{pinned.strip()} \\\n{rest}")
            found.add(name)
    if names - found:
        raise SystemExit(f"requirements-runtime.lock lacks {', '.join(sorted(names - found))}: run `make lock`")
    return "".join(kept)


def _foreign(python: str, platform: str) -> list[str]:
    options = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python, "--no-deps"]
    return options + [word for tag in PLATFORMS[platform] for word in ("--platform", tag)]


def download(into: Path, names: set[str], python: str, platform: str) -> list[Path]:
    """Download the pinned wheels for a platform; return those of this call."""
    into.mkdir(parents=True, exist_ok=True)
    pins = into / "pins.txt"
    pins.write_text(lock(names, python))
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    subprocess.run([*pip, *_foreign(python, platform), "-d", str(into), "-r", str(pins)], check=True)
    pins.unlink()
    return sorted(into.glob("*.whl"))


def unpack(into: Path, wheels: Sequence[Path], python: str, platform: str) -> None:
    """Install wheels into a folder that is put on the path; scripts and caches stay out."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--upgrade",
    ]
    options = [*_foreign(python, platform), "--target", str(into), "--no-index"]
    subprocess.run([*pip, *options, *map(str, wheels)], check=True)
    script = into / "bin"
    for path in sorted(script.glob("*")):
        path.unlink()
    if script.is_dir():
        script.rmdir()
