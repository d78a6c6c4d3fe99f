"""Builds everything that a release uploads into dist/: wheel, sdist, chart, kubectl plugin and its krew manifest.

Checks first that the version is the same everywhere and that CHANGELOG.md has a section for it. Nothing is uploaded.
`python tools/release.py [--check]`.
"""

import argparse
import gzip
import hashlib
import io
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
CHART = ROOT / "deploy" / "chart" / "dovetail"
PLUGIN = """#!/bin/sh
# kubectl dovetail: hands over to the dovetail command, which the wheel installs.
command -v dovetail >/dev/null || {
    echo "kubectl dovetail needs the dovetail command: install the wheel dovetail-k8s" >&2
    exit 2
}
exec dovetail "$@"
"""


def versions(root: Path = ROOT) -> dict[str, str]:
    """Return every place that states the version."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    package = re.search(r'^__version__ = "(.+)"$', (root / "src/dovetail/__init__.py").read_text(), re.MULTILINE)
    chart = (root / "deploy/chart/dovetail/Chart.yaml").read_text()
    found = {"pyproject.toml": project, "src/dovetail/__init__.py": package[1] if package else ""}
    for key in ("version", "appVersion"):
        stated = re.search(rf'^{key}: "?([^"\n]+)"?$', chart, re.MULTILINE)
        found[f"Chart.yaml {key}"] = stated[1] if stated else ""
    return found


def problems(root: Path = ROOT) -> list[str]:
    """Return what stands in the way of a release."""
    found = versions(root)
    version = found["pyproject.toml"]
    wrong = [
        f"{where} says {said or 'nothing'}, pyproject.toml {version}"
        for where, said in found.items()
        if said != version
    ]
    headings = re.findall(r"^## \[?([^\]\s]+)", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if version not in headings:
        wrong.append(f"CHANGELOG.md has no section for {version}; rename Unreleased")
    return wrong


def archive(target: Path, files: dict[str, tuple[bytes, int]]) -> str:
    """Write a reproducible .tar.gz and return its SHA-256."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            data, mode = files[name]
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(data), mode, 0
            tar.addfile(info, io.BytesIO(data))
    target.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    return hashlib.sha256(target.read_bytes()).hexdigest()


def build(root: Path = ROOT, dist: Path = DIST) -> list[Path]:
    """Build everything; return what was made."""
    version = versions(root)["pyproject.toml"]
    dist.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(dist)], cwd=root, check=True)
    chart = dist / f"dovetail-chart-{version}.tgz"
    source = root / "deploy" / "chart" / "dovetail"
    files = {
        f"dovetail/{path.relative_to(source)}": (path.read_bytes(), 0o644)
        for path in sorted(source.rglob("*"))
        if path.is_file()
    }
    archive(chart, files)
    plugin = dist / f"kubectl-dovetail-{version}.tar.gz"
    license_text = (root / "LICENSE").read_bytes()
    digest = archive(plugin, {"kubectl-dovetail": (PLUGIN.encode(), 0o755), "LICENSE": (license_text, 0o644)})
    manifest = dist / "dovetail.yaml"
    template = (root / "deploy" / "krew" / "dovetail.yaml").read_text()
    manifest.write_text(template.replace("VERSION", version).replace("SHA256", digest))
    return [*sorted(dist.glob(f"dovetail_k8s-{version}*")), chart, plugin, manifest]


def main() -> int:
    """Check, build and list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="check versions and changelog only")
    args = parser.parse_args()
    wrong = problems()
    for text in wrong:
        print(f"not ready: {text}", file=sys.stderr)
    if wrong or args.check:
        return 1 if wrong else 0
    for path in build():
        print(f"{path.relative_to(ROOT)}  {hashlib.sha256(path.read_bytes()).hexdigest()}")
    print(f"image: docker build -f deploy/Dockerfile -t dovetail:{versions()['pyproject.toml']} .")
    print("upload these, tag the commit, and push the image: nothing was uploaded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
