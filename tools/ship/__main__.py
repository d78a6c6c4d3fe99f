"""`python -m tools.ship COMMAND`: what the release workflow runs, and what CI runs of it."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from tools.ship import DIST, ROOT, chart, image, plugin, wheels, where
from tools.ship.archives import digest


def versions(root: Path = ROOT) -> dict[str, str]:
    """Return every place that states the version."""
    package = re.search(r'^__version__ = "(.+)"$', (root / "src/dovetail/__init__.py").read_text(), re.MULTILINE)
    text = (root / "deploy/chart/dovetail/Chart.yaml").read_text()
    found = {"pyproject.toml": wheels.version(root), "src/dovetail/__init__.py": package[1] if package else ""}
    for key in ("version", "appVersion"):
        stated = re.search(rf'^{key}: "?([^"\n]+)"?$', text, re.MULTILINE)
        found[f"Chart.yaml {key}"] = stated[1] if stated else ""
    return found


def problems(root: Path = ROOT, tag: str = "") -> list[str]:
    """Return what stands in the way of a release."""
    found = versions(root)
    version = found["pyproject.toml"]
    wrong = [
        f"{where_} says {said or 'nothing'}, pyproject.toml {version}"
        for where_, said in found.items()
        if said != version
    ]
    if tag and tag != f"v{version}":
        wrong.append(f"the tag is {tag}, pyproject.toml says {version}: tag v{version}")
    if not notes(root):
        wrong.append(f"CHANGELOG.md has no section for {version}; rename Unreleased")
    wrong += [f"deploy/release.env names no {name}" for name in ("OWNER", "REGISTRY") if not where(root)[name]]
    return wrong


def notes(root: Path = ROOT) -> str:
    """Return the changelog's section of this version; empty if there is none."""
    sections = re.split(r"(?m)^## ", (root / "CHANGELOG.md").read_text())[1:]
    heading = re.compile(rf"\[?{re.escape(wheels.version(root))}\]?(\s|$)")
    return next((text.partition("\n")[2].strip() for text in sections if heading.match(text)), "")


def checksums(dist: Path) -> Path:
    """Write SHA256SUMS over every file of the folder."""
    target = dist / "SHA256SUMS"
    files = [path for path in sorted(dist.iterdir()) if path.is_file() and path != target]
    target.write_text("".join(f"{digest(path.read_bytes())}  {path.name}\n" for path in files))
    return target


def push(layout: Path, packaged: Path, *, crane: str, helm: str, plain: bool) -> None:
    """Push the image and the chart to the registry of deploy/release.env."""
    name = chart.image_name()
    insecure = ["--insecure"] if plain else []
    subprocess.run([crane, "push", *insecure, str(layout), f"{name}:{wheels.version()}"], check=True)
    target = f"oci://{where()['REGISTRY']}/{where()['OWNER']}/charts"
    subprocess.run([helm, "push", *(["--plain-http"] if plain else []), str(packaged), target], check=True)


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="python -m tools.ship", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="versions, changelog and addresses; exit 1 if something is missing")
    check.add_argument("--tag", default="", help="the tag of the release, vVERSION")
    commands.add_parser("wheel", help="wheel and sdist into dist/")
    built = commands.add_parser("plugin", help="the archives of kubectl dovetail and the krew manifest")
    built.add_argument("--platform", action="append", choices=list(wheels.PLATFORMS))
    built.add_argument("--python", action="append", choices=wheels.PYTHONS)
    made = commands.add_parser("image", help="the OCI layout of the image; prints its digest")
    made.add_argument("--arch", action="append", choices=image.ARCHITECTURES)
    packed = commands.add_parser("chart", help="the chart, with the image's digest")
    packed.add_argument("--digest", default="")
    commands.add_parser("checksums", help="SHA256SUMS over dist/")
    commands.add_parser("notes", help="the changelog's section of this version")
    sent = commands.add_parser("push", help="push image and chart to the registry")
    sent.add_argument("--crane", default="crane")
    sent.add_argument("--helm", default="helm")
    sent.add_argument("--plain-http", action="store_true", help="for a registry on this machine")
    args = parser.parse_args()
    DIST.mkdir(exist_ok=True)
    if args.command == "check":
        wrong = problems(tag=args.tag)
        for text in wrong:
            print(f"not ready: {text}", file=sys.stderr)
        return 1 if wrong else 0
    if args.command == "wheel":
        print(*wheels.build(DIST), sep="\n")
    elif args.command == "plugin":
        archives = {}
        for platform in args.platform or wheels.PLATFORMS:
            made_ = plugin.build(DIST, _wheel(), platform, tuple(args.python or wheels.PYTHONS))
            archives[platform] = digest(made_.read_bytes())
            print(f"{made_} {made_.stat().st_size >> 20} MiB")
        (DIST / "dovetail.yaml").write_text(plugin.manifest(archives))
    elif args.command == "image":
        print(image.build(DIST / "image", _wheel(), tuple(args.arch or image.ARCHITECTURES)))
    elif args.command == "chart":
        print(chart.build(DIST, args.digest))
    elif args.command == "checksums":
        print(checksums(DIST))
    elif args.command == "notes":
        print(notes())
    else:
        packaged = DIST / f"dovetail-{wheels.version()}.tgz"
        push(DIST / "image", packaged, crane=args.crane, helm=args.helm, plain=args.plain_http)
    return 0


def _wheel() -> Path:
    """Return the wheel of this version, building it first if need be."""
    name = f"dovetail_k8s-{wheels.version()}-py3-none-any.whl"
    return DIST / name if (DIST / name).exists() else next(p for p in wheels.build(DIST) if p.name == name)


if __name__ == "__main__":
    sys.exit(main())
