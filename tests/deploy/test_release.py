"""What a release needs before it is built: matching versions, a changelog section, addresses; archives that repeat."""

import re
import shutil
import tarfile
from pathlib import Path

import pytest
import yaml
from tools.ship import plugin, wheels, where
from tools.ship.__main__ import notes, problems, versions
from tools.ship.archives import archive, tar

from tests.paths import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def _copy(tmp_path: Path) -> Path:
    for name in (
        "pyproject.toml",
        "CHANGELOG.md",
        "src/dovetail/__init__.py",
        "deploy/chart/dovetail/Chart.yaml",
        "deploy/release.env",
    ):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    return tmp_path


def test_the_version_is_the_same_everywhere() -> None:
    """pyproject, package and chart have the same version."""
    assert len(set(versions().values())) == 1


def test_a_release_needs_its_changelog_tag_and_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version, tag or a missing section is reported, and so is an address that nobody filled in."""
    root = _copy(tmp_path)
    version = wheels.version(root)
    monkeypatch.setenv("REGISTRY", "registry.test")
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## {version} - 2026-11-16\n\n- one\n\n## 0.0.1\n\n- old\n")
    assert problems(root, tag=f"v{version}") == []
    assert notes(root) == "- one"
    assert problems(root, tag="v9.9.9") == [f"the tag is v9.9.9, pyproject.toml says {version}: tag v{version}"]
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    assert problems(root) == [f"CHANGELOG.md has no section for {version}; rename Unreleased"]
    chart = root / "deploy/chart/dovetail/Chart.yaml"
    chart.write_text(chart.read_text().replace(f"appVersion: {version}", "appVersion: 9.9.9"))
    assert any("appVersion says 9.9.9" in text for text in problems(root))
    monkeypatch.setenv("REGISTRY", "")
    assert "deploy/release.env names no REGISTRY" in problems(root)


def test_archives_are_reproducible(tmp_path: Path) -> None:
    """Two builds produce the same bytes; modes, folders and links are kept."""
    files = {"kubectl-dovetail": (plugin.launcher().encode(), 0o755), "LICENSE": (b"x", 0o644)}
    assert archive(tmp_path / "a.tgz", files) == archive(tmp_path / "b.tgz", files)
    with tarfile.open(tmp_path / "a.tgz") as read:
        assert read.getmember("kubectl-dovetail").mode == 0o755
    assert tar({}, {"tmp": 0o1777}, {"bin": "usr/bin"}) == tar({}, {"tmp": 0o1777}, {"bin": "usr/bin"})


def test_the_krew_manifest_names_every_platform() -> None:
    """Each platform has its archive below the forge and owner of deploy/release.env, with its digest."""
    manifest = yaml.safe_load(plugin.manifest(dict.fromkeys(wheels.PLATFORMS, "0" * 64)))
    assert manifest["metadata"]["name"] == "dovetail"
    base = f"{where()['FORGE']}/{where()['OWNER']}/{where()['REPOSITORY']}/releases/download/v{wheels.version()}/"
    assert [entry["uri"].startswith(base) for entry in manifest["spec"]["platforms"]] == [True] * 4
    assert {tuple(entry["selector"]["matchLabels"].values()) for entry in manifest["spec"]["platforms"]} == {
        ("linux", "amd64"), ("linux", "arm64"), ("darwin", "amd64"), ("darwin", "arm64"),
    }  # fmt: skip


def test_the_pins_of_another_python_are_found() -> None:
    """Markers of the lock file are evaluated for the Python that is shipped, not for the one that builds."""
    older, newer = wheels.lock({"numpy"}, "3.11"), wheels.lock({"numpy"}, "3.13")
    assert older != newer
    for text in (older, newer):
        assert text.count("numpy==") == 1
        assert ";" not in text
    assert "boto3" not in wheels.needed()
    assert "boto3" in wheels.needed(("aws",))
    with pytest.raises(SystemExit, match="lacks no-such-thing"):
        wheels.lock({"no-such-thing"}, "3.12")


@pytest.mark.parametrize("python", wheels.PYTHONS)
def test_every_python_has_its_pins(python: str) -> None:
    """What a supported Python needs is pinned for it; what only others need is not asked for."""
    names = wheels.needed(("aws",), python)
    pinned = wheels.lock(names, python)
    assert all(f"{name}==" in pinned for name in names)
    assert ("typing-extensions" in names) == (python in ("3.11", "3.12"))


def test_the_demo_installs_only_what_it_needs() -> None:
    """Its lock file is part of the runtime's lock file, including hashes."""
    demo = (ROOT / "requirements-demo.lock").read_text()
    runtime = (ROOT / "requirements-runtime.lock").read_text()
    names = {line.split("==")[0] for line in demo.splitlines() if "==" in line}
    assert names == {"markdown-it-py", "mdurl", "msgspec", "numpy", "pygments", "pyyaml", "rich", "tzdata"}
    assert all(line in runtime for line in demo.splitlines())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_are_pinned_and_have_least_permissions(path: Path) -> None:
    """Each action is pinned by a commit; a job that writes says so itself; only a tag can reach a job that writes."""
    text = path.read_text()
    workflow = yaml.safe_load(text)
    for action in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w/.-]+@[0-9a-f]{40}", action), action
    assert workflow["permissions"] == {"contents": "read"}
    writing = [job for job in workflow["jobs"].values() if "write" in (job.get("permissions") or {}).values()]
    if writing:
        assert workflow[True] == {"push": {"tags": ["v*"]}}
    for job in workflow["jobs"].values():
        attests = any("attest-" in str(step.get("uses")) for step in job["steps"])
        assert ("attestations" in (job.get("permissions") or {})) == attests
    assert "pull_request_target" not in text
    assert "${{ github.event" not in text, "text of other people must not reach a shell"


def test_every_step_of_a_workflow_exists() -> None:
    """What the workflows call is a command of tools.ship, a target of make, or a script of the repository."""
    import subprocess
    import sys

    shown = subprocess.run(
        [sys.executable, "-m", "tools.ship", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    known = set(re.search(r"\{([\w,]+)\}", shown)[1].split(","))  # type: ignore[index]
    text = "\n".join(path.read_text() for path in WORKFLOWS)
    used = set(re.findall(r"-m tools\.ship (\w+)", text))
    assert used
    assert used <= known
    assert known - used == set(), "a command that no workflow runs"
    for script in re.findall(r"(?<![\w./])(\.ci/\w+|tools/[\w/]+)\b", text):
        assert (ROOT / script).exists(), script
