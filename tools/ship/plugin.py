"""The archive of `kubectl dovetail`: the command with every package that it needs, for one platform.

krew unpacks it into a folder, so nothing is extracted when it starts. Packages with compiled parts are there once for
each supported Python, all others once. All that it asks of the machine is one of these Pythons.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml
from tools.ship import ROOT, where
from tools.ship.archives import archive, tree
from tools.ship.wheels import PYTHONS, download, needed, unpack, version

LAUNCHER = """#!/bin/sh
# kubectl dovetail: starts the command in lib/ with a Python of this machine. DOVETAIL_PYTHON names another one.
set -e
self=$0
while [ -L "$self" ]; do # krew links to it
    link=$(readlink "$self")
    case $link in /*) self=$link ;; *) self=$(dirname "$self")/$link ;; esac
done
here=$(cd "$(dirname "$self")" && pwd)
for python in ${DOVETAIL_PYTHON:+"$DOVETAIL_PYTHON"} PYTHONS python3; do
    if command -v "$python" >/dev/null 2>&1 && abi=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) &&
        [ -d "$here/lib/$abi" ]; then
        exec "$python" "$here/lib/start.py" "$@"
    fi
done
echo "kubectl dovetail needs Python RANGE: install one, or name it in DOVETAIL_PYTHON" >&2
exit 2
"""
START = '''"""Starts the command from the folders next to this file."""

import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
python = "%d.%d" % sys.version_info[:2]
sys.path[:1] = [os.path.join(here, python), os.path.join(here, "any")]

if __name__ == "__main__":  # processes of a simulation import this file, too
    sys.argv[0] = "kubectl-dovetail"
    from dovetail.cli.main import entry

    entry()
'''


def launcher(pythons: Sequence[str] = PYTHONS) -> str:
    """Return the script that kubectl starts."""
    span = pythons[0] if len(pythons) == 1 else f"{pythons[0]} to {pythons[-1]}"
    named = " ".join(f"python{python}" for python in reversed(pythons))
    return LAUNCHER.replace("PYTHONS python3", f"{named} python3").replace("RANGE", span)


def build(dist: Path, wheel: Path, platform: str, pythons: Sequence[str] = PYTHONS) -> Path:
    """Build the archive of one platform."""
    files = {
        "kubectl-dovetail": (launcher(pythons).encode(), 0o755),
        "LICENSE": ((ROOT / "LICENSE").read_bytes(), 0o644),
        "lib/start.py": (START.encode(), 0o644),
    }
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for python in pythons:
            wheels = download(work / python, needed(python=python), python, platform)
            bound = [path for path in wheels if not path.name.endswith("-none-any.whl")]
            unpack(work / "lib" / python, bound, python, platform)
            unpack(work / "lib" / "any", [wheel, *(path for path in wheels if path not in bound)], python, platform)
        found = tree(work / "lib", "lib/")
        files |= {name: body for name, body in found if "/tests/" not in name and not name.endswith(".pyi")}
    target = dist / f"kubectl-dovetail-{platform}.tar.gz"
    archive(target, files)
    return target


def manifest(archives: dict[str, str], root: Path = ROOT) -> str:
    """Return the krew manifest for archives with their digests, by platform."""
    places = where(root)
    base = f"{places['FORGE']}/{places['OWNER']}/{places['REPOSITORY']}"
    tree_ = yaml.safe_load((root / "deploy" / "krew" / "dovetail.yaml").read_text())
    tree_["spec"]["version"] = f"v{version(root)}"
    tree_["spec"]["homepage"] = base
    tree_["spec"]["platforms"] = [
        {
            "selector": {"matchLabels": dict(zip(("os", "arch"), platform.split("-"), strict=True))},
            "uri": f"{base}/releases/download/v{version(root)}/kubectl-dovetail-{platform}.tar.gz",
            "sha256": digest,
            "bin": "kubectl-dovetail",
            "files": [{"from": "*", "to": "."}],
        }
        for platform, digest in sorted(archives.items())
    ]
    return yaml.safe_dump(tree_, sort_keys=False, width=120)
