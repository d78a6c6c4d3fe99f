"""The image as an OCI layout, for both architectures, without a container engine.

Two layers: what Python needs from Debian's packages (no shell, no package manager) and Dovetail with its pinned wheels.
The packages come from the apt sources of the machine that builds, whose release decides the version of Python. Each
architecture has an attestation in the index, as buildx writes them: the bill of materials (SPDX) and how it was made
(SLSA provenance).
"""

import gzip
import json
import os
import py_compile
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.ship import ROOT, where
from tools.ship.archives import digest, tar, tree
from tools.ship.wheels import download, needed, unpack, version

ARCHITECTURES = ("amd64", "arm64")
USER = 65532
NOT_NEEDED = frozenset({"debconf", "perl-base", "dpkg", "tar", "install-info", "sensible-utils", "readline-common"})
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"


@dataclass(slots=True)
class Layout:
    """An OCI layout that is being written."""

    folder: Path
    manifests: list[dict[str, Any]] = field(default_factory=list)

    def put(self, data: bytes, kind: str) -> dict[str, Any]:
        """Write a blob and return its descriptor."""
        name = digest(data)
        target = self.folder / "blobs" / "sha256" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{name}", "size": len(data)}

    def put_json(self, tree_: Any, kind: str) -> dict[str, Any]:
        """Write a document as a blob."""
        return self.put(json.dumps(tree_, sort_keys=True, separators=(",", ":")).encode(), kind)

    def close(self, annotations: dict[str, str]) -> str:
        """Write the index of all architectures, and return its digest."""
        body = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": self.manifests, "annotations": annotations}
        top = self.put_json(body, _INDEX)
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        (self.folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [top]}))
        return str(top["digest"])


def debian_python() -> str:
    """Return the version of Debian's Python 3, as `3.11`."""
    shown = subprocess.run(["apt-cache", "show", "--no-all-versions", "python3"], capture_output=True, text=True)
    if shown.returncode:
        raise SystemExit("an image needs Debian's packages: run this on Debian, after `apt-get update`")
    stated = next(line for line in shown.stdout.splitlines() if line.startswith("Version:"))
    return ".".join(stated.split()[1].split(".")[:2])


def packages(into: Path, architecture: str, python: str) -> list[Path]:
    """Download Debian's packages that Python needs for an architecture, with apt in a folder of its own."""
    into.mkdir(parents=True)
    for name in ("lists/partial", "cache/archives/partial"):
        (into / name).mkdir(parents=True)
    (into / "status").touch()
    options = {
        "APT::Architecture": architecture, "APT::Architectures": architecture, "APT::Sandbox::User": "root",
        "Dir::State::lists": f"{into}/lists", "Dir::State::status": f"{into}/status", "Dir::Cache": f"{into}/cache",
        "Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": f"{into}/sources",
        "Acquire::Languages": "none", "APT::Install-Recommends": "false",
    }  # fmt: skip
    _own_sources(into / "sources")
    apt = ["apt-get", "-qq", "--yes", *(f"-o{name}={value}" for name, value in options.items())]
    environment = {**os.environ, "LC_ALL": "C", "APT_CONFIG": "/dev/null"}
    roots = [f"python{python}-minimal", f"libpython{python}-stdlib", "libstdc++6", "ca-certificates", "netbase"]
    _quiet([*apt, "update"], environment, into)
    plan = _quiet([*apt, "--simulate", "install", *roots], environment, into)
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    kept = [name for name in names if name.partition(":")[0] not in NOT_NEEDED and name != "openssl"]
    _quiet([*apt, "download", *(f"{name.partition(':')[0]}:{architecture}" for name in kept)], environment, into)
    return sorted(into.glob("*.deb"))


def _own_sources(folder: Path) -> None:
    """Copy the machine's Debian sources; those of others are left out."""
    folder.mkdir()
    listed = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for path in listed:
        if path.is_file() and "debian-archive-keyring" in path.read_text():
            (folder / path.name).write_text(path.read_text())
    if not list(folder.iterdir()):
        for path in listed:
            if path.is_file():
                (folder / path.name).write_text(path.read_text())


def _quiet(command: Sequence[str], environment: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:2])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def base_layer(debs: Sequence[Path], work: Path, python: str) -> tuple[bytes, list[dict[str, str]]]:
    """Return the layer of Debian's files, and what each package is."""
    root, found = work / "base", []
    for deb in debs:
        _quiet(["dpkg-deb", "-x", str(deb), str(root)], dict(os.environ), work)
        control = _quiet(["dpkg-deb", "-f", str(deb)], dict(os.environ), work)
        fields = dict(line.split(": ", 1) for line in control.splitlines() if ": " in line and line[0] != " ")
        listed = {"name": fields["Package"], "version": fields["Version"], "architecture": fields["Architecture"]}
        found.append({**listed, "sha256": digest(deb.read_bytes()), "control": control})
    files: dict[str, Any] = dict(tree(root))
    links: dict[str, Any] = {
        str(path.relative_to(root)): str(path.readlink()) for path in sorted(root.rglob("*")) if path.is_symlink()
    }
    for name in [name for name in files if name.startswith(("usr/share/doc/", "usr/share/man/", "usr/share/lintian/"))]:
        if not name.endswith("/copyright"):
            del files[name]
    roots = sorted(name for name in files if name.startswith("usr/share/ca-certificates/") and name.endswith(".crt"))
    files["etc/ssl/certs/ca-certificates.crt"] = (b"".join(files[name][0] for name in roots), 0o644)
    files["etc/passwd"] = (f"nobody:x:{USER}:{USER}::/:/none\n".encode(), 0o644)
    files["etc/group"] = (f"nobody:x:{USER}:\n".encode(), 0o644)
    files["etc/os-release"] = (Path("/etc/os-release").read_bytes(), 0o644)
    for entry in found:  # where scanners look for the packages of images without a package manager
        files[f"var/lib/dpkg/status.d/{entry['name']}"] = (entry.pop("control").encode(), 0o644)
    links.setdefault("usr/bin/python3", f"python{python}")
    # Debian's files are below /usr; the old names are links to it.
    for old in ("bin", "sbin", "lib", "lib64"):
        for table in (files, links):
            for name in [name for name in table if name.startswith(f"{old}/")]:
                table[f"usr/{name}"] = table.pop(name)
        links[old] = f"usr/{old}"
    return tar(files, {"tmp": 0o1777, "usr/lib64": 0o755, "usr/sbin": 0o755}, links), found


def own_layer(wheel: Path, work: Path, architecture: str, python: str) -> tuple[bytes, list[dict[str, str]]]:
    """Return the layer with Dovetail and its wheels, compiled, and what each wheel is."""
    platform = f"linux-{architecture}"
    wheels = [wheel, *download(work / "wheels", needed(("aws",), python), python, platform)]
    unpack(work / "lib", wheels, python, platform)
    files = {name: content for name, content in tree(work / "lib", "opt/dovetail/lib/") if "/tests/" not in name}
    if f"{sys.version_info[0]}.{sys.version_info[1]}" == python:
        for name in [name for name in files if name.endswith(".py")]:
            compiled = _compiled(work / "lib" / name.removeprefix("opt/dovetail/lib/"), f"/{name}", work)
            folder, _, base = name.rpartition("/")
            files[f"{folder}/__pycache__/{base[:-3]}.cpython-{python.replace('.', '')}.pyc"] = (compiled, 0o644)
    script = (
        f"#!/usr/bin/python{python}\nfrom dovetail.cli.main import entry\n\nif __name__ == '__main__':\n    entry()\n"
    )
    files["opt/dovetail/bin/dovetail"] = (script.encode(), 0o755)
    found = []
    for path in wheels:
        name, number = path.name.split("-")[:2]
        found.append({"name": name, "version": number, "sha256": digest(path.read_bytes())})
    return tar(files), found


def _compiled(path: Path, shown: str, work: Path) -> bytes:
    target = work / "one.pyc"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(path), cfile=str(target), dfile=shown, doraise=True, invalidation_mode=mode)
    return target.read_bytes()


def build(target: Path, wheel: Path, architectures: Sequence[str] = ARCHITECTURES) -> str:
    """Write the layout and return the digest of its index."""
    python, layout = debian_python(), Layout(target)
    labels = _labels()
    for architecture in architectures:
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            base, debs = base_layer(packages(work / "apt", architecture, python), work, python)
            own, wheels = own_layer(wheel, work, architecture, python)
        layers = [base, own]
        config = {
            "created": _moment(),
            "architecture": architecture,
            "os": "linux",
            "config": {
                "User": f"{USER}:{USER}",
                "Env": [
                    "PATH=/opt/dovetail/bin:/usr/bin",
                    "PYTHONPATH=/opt/dovetail/lib",
                    "PYTHONDONTWRITEBYTECODE=1",
                    "PYTHONUNBUFFERED=1",
                    "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
                ],
                "Entrypoint": ["dovetail"],
                "Cmd": ["run", "--observe"],
                "WorkingDir": "/",
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(layer)}" for layer in layers]},
        }
        body = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": layout.put_json(config, _CONFIG),
            "layers": [layout.put(gzip.compress(layer, 6, mtime=0), _LAYER) for layer in layers],
            "annotations": labels,
        }
        made = layout.put_json(body, _MANIFEST)
        layout.manifests.append({**made, "platform": {"architecture": architecture, "os": "linux"}})
        statements = [
            ("https://spdx.dev/Document", bill(architecture, debs, wheels)),
            ("https://slsa.dev/provenance/v1", provenance(debs, wheels)),
        ]
        layout.manifests.append(_attestation(layout, made, statements))
    return layout.close(labels)


def _attestation(layout: Layout, image: dict[str, Any], statements: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the manifest that says of an image what it holds and how it was made, in the form that buildx uses."""
    subject = [{"name": "dovetail", "digest": {"sha256": image["digest"].partition(":")[2]}}]
    layers = []
    for predicate, body in statements:
        whole = {
            "_type": "https://in-toto.io/Statement/v1", "subject": subject,
            "predicateType": predicate, "predicate": body,
        }  # fmt: skip
        put = layout.put_json(whole, "application/vnd.in-toto+json")
        layers.append({**put, "annotations": {"in-toto.io/predicate-type": predicate}})
    ids = [layer["digest"] for layer in layers]
    config = {"architecture": "unknown", "os": "unknown", "config": {}, "rootfs": {"type": "layers", "diff_ids": ids}}
    body = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": layout.put_json(config, _CONFIG), "layers": layers}
    return {
        **layout.put_json(body, _MANIFEST),
        "platform": {"architecture": "unknown", "os": "unknown"},
        "annotations": {
            "vnd.docker.reference.type": "attestation-manifest",
            "vnd.docker.reference.digest": image["digest"],
        },
    }


def bill(architecture: str, debs: Sequence[dict[str, str]], wheels: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Return what the image holds, as SPDX 2.3."""
    entries = [(f"pkg:deb/debian/{deb['name']}@{deb['version']}?arch={deb['architecture']}", deb) for deb in debs] + [
        (f"pkg:pypi/{wheel['name'].lower().replace('_', '-')}@{wheel['version']}", wheel) for wheel in wheels
    ]
    found = [
        {
            "SPDXID": f"SPDXRef-{number}",
            "name": entry["name"],
            "versionInfo": entry["version"],
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "checksums": [{"algorithm": "SHA256", "checksumValue": entry["sha256"]}],
            "externalRefs": [
                {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
            ],
        }
        for number, (purl, entry) in enumerate(entries)
    ]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"dovetail-{version()}-{architecture}",
        "documentNamespace": f"{_source()}/sbom/{version()}/{architecture}",
        "creationInfo": {"created": _moment(), "creators": ["Tool: tools.ship"]},
        "packages": found,
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": entry["SPDXID"],
            }
            for entry in found
        ],
    }


def provenance(debs: Sequence[dict[str, str]], wheels: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Return how the image was made, as SLSA provenance."""
    run = "/".join(os.environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"))
    commit = _git("rev-parse", "HEAD")
    inputs = [{"uri": f"git+{_source()}", "digest": {"gitCommit": commit}}] if commit else []
    inputs += [
        {"name": f"{entry['name']} {entry['version']}", "digest": {"sha256": entry["sha256"]}}
        for entry in (*debs, *wheels)
    ]
    return {
        "buildDefinition": {
            "buildType": f"{_source()}/tools/ship",
            "externalParameters": {"version": version()},
            "resolvedDependencies": inputs,
        },
        "runDetails": {"builder": {"id": run if run != "//" else "local"}, "metadata": {"startedOn": _moment()}},
    }


def _labels() -> dict[str, str]:
    prefix = "org.opencontainers.image"
    return {
        f"{prefix}.title": "dovetail",
        f"{prefix}.version": version(),
        f"{prefix}.source": _source(),
        f"{prefix}.licenses": "Apache-2.0",
        f"{prefix}.revision": _git("rev-parse", "HEAD"),
        f"{prefix}.created": _moment(),
    }


def _source() -> str:
    places = where()
    return f"{places['FORGE']}/{places['OWNER']}/{places['REPOSITORY']}"


def _moment() -> str:
    """Return the time of the commit, so that two builds of it are the same bytes."""
    stated = os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct") or "0"
    return datetime.fromtimestamp(int(stated), UTC).isoformat().replace("+00:00", "Z")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def unpacked(layout: Path, into: Path, architecture: str = "amd64") -> dict[str, Any]:
    """Extract an image of a layout into a folder, for a chroot, and return its config."""
    import io
    import tarfile

    def blob(name: str) -> bytes:
        return (layout / "blobs" / "sha256" / name.partition(":")[2]).read_bytes()

    top = json.loads((layout / "index.json").read_text())["manifests"][0]
    listed = json.loads(blob(top["digest"]))
    if "manifests" in listed:
        made = next(each for each in listed["manifests"] if each["platform"]["architecture"] == architecture)
        listed = json.loads(blob(made["digest"]))
    for layer in listed["layers"]:
        with tarfile.open(fileobj=io.BytesIO(blob(layer["digest"])), mode="r:gz") as archive:
            archive.extractall(into, filter="fully_trusted")
    config: dict[str, Any] = json.loads(blob(listed["config"]["digest"]))
    return config
