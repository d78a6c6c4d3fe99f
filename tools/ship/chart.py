"""The chart as it is published: it names the image of its own release, by digest."""

import re
from pathlib import Path

from tools.ship import ROOT, where
from tools.ship.archives import archive, tree
from tools.ship.wheels import version


def image_name(root: Path = ROOT) -> str:
    """Return where the image is pushed."""
    places = where(root)
    return f"{places['REGISTRY']}/{places['OWNER']}/{places['REPOSITORY']}"


def build(dist: Path, digest: str = "", root: Path = ROOT) -> Path:
    """Package the chart; with a digest its default image is that one, in the registry of deploy/release.env."""
    source = root / "deploy" / "chart" / "dovetail"
    files = {name: body for name, body in tree(source, "dovetail/") if not name.startswith("dovetail/ci/")}
    if digest:
        text = files["dovetail/values.yaml"][0].decode()
        text, one = re.subn(r"(?m)^  repository: .*$", f"  repository: {image_name(root)}", text)
        text, two = re.subn(r'(?m)^  digest: ""', f"  digest: {digest}", text)
        if (one, two) != (1, 1):
            raise SystemExit("deploy/chart/dovetail/values.yaml: image.repository or image.digest was not found")
        files["dovetail/values.yaml"] = (text.encode(), 0o644)
    target = dist / f"dovetail-{version(root)}.tgz"
    archive(target, files)
    return target
