"""From an empty machine: each way to install a release, as one line, from an index and a registry on loopback.

The parts are built by the commands that the release workflow runs. The image is not run by a container engine: it is
pulled as the Deployment names it, unpacked, and started in a chroot as its user, with the chart's service account.
"""

import contextlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.ship import chart, image, plugin, wheels
from tools.ship.__main__ import checksums, push
from tools.ship.archives import digest

from dovetail import __version__
from tests.deploy.account import kubeconfig_for, token_of
from tests.paths import ROOT
from tests.support.chart import NAMESPACE, tool
from tests.support.control_plane import ControlPlane, eventually
from tests.support.golden_cases import DATA

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.xdist_group("release")]
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")
CASE = DATA / "045"
ASKED = ["plan", "-f", str(CASE / "cluster.json.gz"), "--catalog", str(CASE / "catalog.json.gz")]
AARCH64 = 183  # the machine in the head of an ELF file
SBOM, PROVENANCE = "https://spdx.dev/Document", "https://slsa.dev/provenance/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release in a folder, and where its parts are served."""

    dist: Path
    index: str
    registry: str
    digest: str


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def _serving(command: list[str], url: str) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: _answers(url))
            yield
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Build every part for this machine, serve the wheels, and push image and chart."""
    if sys.platform != "linux" or not ARCHITECTURE or shutil.which("apt-get") is None or os.geteuid() != 0:
        pytest.skip("an image is built from Debian's packages, by root")
    crane, helm = tool("crane"), tool("helm")
    folder = tmp_path_factory.mktemp("release")
    dist, index, port, other = folder / "dist", folder / "index", _free_port(), _free_port()
    registry = f"127.0.0.1:{port}"
    wheel = next(path for path in wheels.build(dist) if path.suffix == ".whl")
    try:
        wheels.download(index, wheels.needed(), PYTHON, f"linux-{ARCHITECTURE}")
        archive = plugin.build(dist, wheel, f"linux-{ARCHITECTURE}", (PYTHON,))
        made = image.build(dist / "image", wheel, (ARCHITECTURE,))
    except (SystemExit, subprocess.CalledProcessError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"the packages can't be had here: {error}")
    shutil.copy(wheel, index)
    (dist / "dovetail.yaml").write_text(plugin.manifest({f"linux-{ARCHITECTURE}": digest(archive.read_bytes())}))
    serve = [sys.executable, "-m", "pypiserver", "run", "-i", "127.0.0.1", "-p", str(other), "--disable-fallback"]
    keep = [str(crane), "registry", "serve", "--address", registry, "--disk", str(folder / "registry")]
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        (folder / "registry").mkdir()
        patch.setenv("REGISTRY", registry)
        patch.setenv("HOME", str(folder))
        stack.enter_context(_serving(keep, f"http://{registry}/v2/"))
        stack.enter_context(_serving([*serve, str(index)], f"http://127.0.0.1:{other}/simple/"))
        push(dist / "image", chart.build(dist, made), crane=str(crane), helm=str(helm), plain=True)
        yield Release(dist=dist, index=f"http://127.0.0.1:{other}/simple/", registry=registry, digest=made)


def _run(*command: object, env: dict[str, str] | None = None, **more: Any) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, env=env, **more)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout


def test_pip_install_from_the_index(release: Release, tmp_path: Path) -> None:
    """In an empty environment one line installs the command with all that it needs, and it plans."""
    _run(sys.executable, "-m", "venv", tmp_path / "venv")
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    _run(
        tmp_path / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--index-url", release.index,
        "dovetail-k8s", env=clean,
    )  # fmt: skip
    command = tmp_path / "venv/bin/dovetail"
    assert _run(command, "--version", env=clean) == f"dovetail {__version__}\n"
    assert "can be saved" in _run(command, *ASKED, env=clean)
    assert "kind: CustomResourceDefinition" in _run(command, "crds", env=clean)


def test_kubectl_dovetail_from_the_krew_archive(release: Release, tmp_path: Path) -> None:
    """Krew accepts manifest and archive; `kubectl dovetail` then plans with nothing of this project installed."""
    clean = {"PATH": f"{tmp_path}/krew/bin:{tool('kubectl').parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    clean |= {"KREW_ROOT": f"{tmp_path}/krew", "DOVETAIL_PYTHON": sys.executable}
    archive = release.dist / f"kubectl-dovetail-linux-{ARCHITECTURE}.tar.gz"
    _run(tool("krew"), "install", "--manifest", release.dist / "dovetail.yaml", "--archive", archive, env=clean)
    assert _run("kubectl", "dovetail", "--version", env=clean) == f"dovetail {__version__}\n"
    assert "can be saved" in _run("kubectl", "dovetail", *ASKED, env=clean)
    simulated = _run("kubectl", "dovetail", "simulate", "issue-7146", "--until", "1m", env=clean)
    assert "recommended" in simulated, "its processes find the packages, too"
    old = subprocess.run(
        [tmp_path / "krew/store/dovetail" / f"v{__version__}" / "kubectl-dovetail", "--version"],
        env={"PATH": f"{_old_python(tmp_path)}:/usr/bin:/bin".replace("/usr/bin:/bin", str(_tools(tmp_path)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (old.returncode, old.stdout) == (2, "")
    assert old.stderr == f"kubectl dovetail needs Python {PYTHON}: install one, or name it in DOVETAIL_PYTHON\n"


def _old_python(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "python3").write_text("#!/bin/sh\necho 3.9\n")
    (folder / "python3").chmod(0o755)
    return folder


def _tools(tmp_path: Path) -> Path:
    """Return a folder with what the launcher needs, and no Python."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("dirname", "readlink", "sh"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


def test_the_image_says_what_it_holds(release: Release) -> None:
    """The pushed index has each image with its bill of materials and its provenance, and two builds are the same."""
    top = json.loads(_run(tool("crane"), "manifest", "--insecure", chart.image_name() + f":{__version__}"))
    images = [each for each in top["manifests"] if each["platform"]["os"] == "linux"]
    assert [each["platform"]["architecture"] for each in images] == [ARCHITECTURE]
    (attached,) = (each for each in top["manifests"] if each["platform"]["os"] == "unknown")
    assert attached["annotations"]["vnd.docker.reference.digest"] == images[0]["digest"]
    layers = _json_of(chart.image_name() + "@" + attached["digest"])["layers"]
    said = {}
    for layer in layers:
        blob = _run(tool("crane"), "blob", "--insecure", f"{chart.image_name()}@{layer['digest']}")
        statement = json.loads(blob)
        assert statement["subject"][0]["digest"]["sha256"] == images[0]["digest"].removeprefix("sha256:")
        said[statement["predicateType"]] = statement["predicate"]
    assert said.keys() == {SBOM, PROVENANCE}
    purls = {ref["referenceLocator"] for entry in said[SBOM]["packages"] for ref in entry["externalRefs"]}
    assert f"pkg:pypi/dovetail-k8s@{__version__}" in purls
    assert any(purl.startswith("pkg:deb/debian/libc6@") for purl in purls)
    assert not any("/perl" in purl or "/dpkg" in purl or "/bash@" in purl for purl in purls)
    assert said[PROVENANCE]["buildDefinition"]["resolvedDependencies"]
    assert image.debian_python() in wheels.PYTHONS


def test_the_image_for_arm64(release: Release, tmp_path: Path) -> None:
    """Every binary in it is for arm64, and under an emulator, where there is one, it plans as the one for amd64."""
    wheel = next(release.dist.glob("*.whl"))
    image.build(tmp_path / "layout", wheel, ("arm64",))
    root = tmp_path / "root"
    config = image.unpacked(tmp_path / "layout", root, "arm64")
    assert config["architecture"] == "arm64"
    heads = [path.read_bytes()[:20] for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    machines = [int.from_bytes(head[18:20], "little") for head in heads if head[:4] == b"\x7fELF"]
    assert len(machines) > 100
    assert set(machines) == {AARCH64}
    tags = [path.read_text() for path in root.glob("opt/dovetail/lib/*.dist-info/WHEEL")]
    assert all("-any" in text or "aarch64" in text for text in tags)
    emulator = shutil.which("qemu-aarch64-static")
    if emulator is None:
        return
    shutil.copy(emulator, root / "usr/bin")
    for name in ("cluster.json.gz", "catalog.json.gz"):
        shutil.copy(CASE / name, root / "tmp")
    variables = [word for entry in config["config"]["Env"] for word in ("-E", entry)]
    python = ["chroot", root, f"/usr/bin/{Path(emulator).name}", *variables, f"/usr/bin/python{image.debian_python()}"]
    asked = ["plan", "-f", "/tmp/cluster.json.gz", "--catalog", "/tmp/catalog.json.gz", "-o", "json"]
    planned = _run(*python, "/opt/dovetail/bin/dovetail", *asked)
    assert planned == _run(sys.executable, "-m", "dovetail.cli.main", *ASKED, "-o", "json")


def _json_of(name: str) -> Any:
    return json.loads(_run(tool("crane"), "manifest", "--insecure", name))


def test_helm_install_from_the_registry(
    release: Release, new_api_server: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    """One line installs the chart; the image that it names starts as its user, observes the cluster and gets ready."""
    plane = new_api_server(whole=True)
    there = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    _run(
        tool("helm"), "install", "dovetail", f"oci://{release.registry}/dovetail-dev/charts/dovetail", "--plain-http",
        "--namespace", NAMESPACE, "--create-namespace", "--kubeconfig", plane.kubeconfig,
        "--set", "catalogue=aws:eu-west-1", env=there,
    )  # fmt: skip
    with plane.client() as admin:
        path = admin.path("apps/v1", "Deployment", NAMESPACE, "dovetail")
        pod = admin.request("GET", path)[1]["spec"]["template"]["spec"]
        settings = admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/dovetail")[1]["data"]
        account = token_of(admin, pod["serviceAccountName"], NAMESPACE)
    container = pod["containers"][0]
    assert container["image"] == f"{release.registry}/dovetail-dev/dovetail@{release.digest}"
    layout, root = tmp_path / "layout", tmp_path / "root"
    _run(tool("crane"), "pull", "--insecure", "--format", "oci", container["image"], layout, env=there)
    config = image.unpacked(layout, root, ARCHITECTURE)["config"]
    _mount(root, plane, account, settings)
    port = _free_port()
    arguments = [word.replace("$(POD_NAMESPACE)", NAMESPACE) for word in container["args"]]
    arguments = [f"--listen=127.0.0.1:{port}" if word.startswith("--listen") else word for word in arguments]
    command = ["chroot", f"--userspec={config['User']}", root, *config["Entrypoint"], *arguments]
    environment = dict(entry.split("=", 1) for entry in config["Env"])
    with subprocess.Popen(
        [*map(str, command), "--kubeconfig=/etc/dovetail/kubeconfig"],
        env={**environment, "POD_NAME": "one", "POD_NAMESPACE": NAMESPACE, "PATH": environment["PATH"] + ":/usr/sbin"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            for _ in range(600):
                if _answers(f"http://127.0.0.1:{port}/readyz") or process.poll() is not None:
                    break
                time.sleep(0.2)
            assert process.poll() is None, process.stderr and process.stderr.read()[-2000:]
            assert _answers(f"http://127.0.0.1:{port}/readyz")
        finally:
            process.terminate()
        assert process.wait(60) == 0


def _mount(root: Path, plane: ControlPlane, token: str, settings: dict[str, str]) -> None:
    """Put what a kubelet would mount into the image's folder, readable for its user."""
    folder = root / "etc/dovetail/settings"
    folder.mkdir(parents=True)
    for name, text in settings.items():
        (folder / name).write_text(text)
    kubeconfig = kubeconfig_for(plane, token, root / "etc/dovetail/kubeconfig", NAMESPACE)
    tree = yaml.safe_load(kubeconfig.read_text())
    shutil.copy(plane.ca_path, root / "etc/dovetail/ca.crt")
    tree["clusters"][0]["cluster"]["certificate-authority"] = "/etc/dovetail/ca.crt"
    kubeconfig.write_text(yaml.safe_dump(tree))
    for path in (kubeconfig, root / "etc/dovetail/ca.crt"):
        path.chmod(0o644)
    for path in (root, *root.parents[:1]):
        path.chmod(0o755)


def test_checksums_cover_every_file(release: Release) -> None:
    """`sha256sum -c` accepts what was built."""
    target = checksums(release.dist)
    listed = {line.split()[1] for line in target.read_text().splitlines()}
    assert {path.name for path in release.dist.iterdir() if path.is_file()} == listed | {"SHA256SUMS"}
    _run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=release.dist)


def test_the_install_lines_of_the_docs_are_these() -> None:
    """The README's lines name the distribution, the chart and the manifest where deploy/release.env puts them."""
    from tools.ship import where

    places = where()
    text = (ROOT / "README.md").read_text()
    assert "pip install dovetail-k8s" in text
    assert f"/{places['OWNER']}/charts/dovetail" in text
    assert f"{places['FORGE']}/{places['OWNER']}/{places['REPOSITORY']}/releases/latest/download/dovetail.yaml" in text
