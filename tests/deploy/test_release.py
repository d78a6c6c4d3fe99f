"""What a release uploads: matching versions, a changelog section, reproducible archives."""

import importlib.util
import shutil
import tarfile
from pathlib import Path
from types import ModuleType

import yaml

ROOT = Path(__file__).parents[2]


def _release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _copy(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "CHANGELOG.md", "src/dovetail/__init__.py", "deploy/chart/dovetail/Chart.yaml"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    return tmp_path


def test_the_version_is_the_same_everywhere() -> None:
    """pyproject, package and chart have the same version."""
    assert len(set(_release().versions().values())) == 1


def test_a_release_needs_its_section_in_the_changelog(tmp_path: Path) -> None:
    """A different version or a missing changelog section is reported."""
    release, root = _release(), _copy(tmp_path)
    version = release.versions(root)["pyproject.toml"]
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## {version} - 2026-11-16\n")
    assert release.problems(root) == []
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    assert release.problems(root) == [f"CHANGELOG.md has no section for {version}; rename Unreleased"]
    chart = root / "deploy/chart/dovetail/Chart.yaml"
    chart.write_text(chart.read_text().replace(f"appVersion: {version}", "appVersion: 9.9.9"))
    assert any("appVersion says 9.9.9" in text for text in release.problems(root))


def test_archives_are_reproducible(tmp_path: Path) -> None:
    """Two builds produce the same bytes, and the plugin runs."""
    release = _release()
    files = {"kubectl-dovetail": (release.PLUGIN.encode(), 0o755), "LICENSE": (b"x", 0o644)}
    one, two = release.archive(tmp_path / "a.tgz", files), release.archive(tmp_path / "b.tgz", files)
    assert one == two
    with tarfile.open(tmp_path / "a.tgz") as tar:
        assert tar.getmember("kubectl-dovetail").mode == 0o755


def test_the_krew_manifest(tmp_path: Path) -> None:
    """The manifest names the plugin that the archive holds."""
    manifest = yaml.safe_load((ROOT / "deploy/krew/dovetail.yaml").read_text())
    assert manifest["metadata"]["name"] == "dovetail"
    (platform,) = manifest["spec"]["platforms"]
    assert platform["bin"] == "kubectl-dovetail"
    assert {"kubectl-dovetail", "LICENSE"} == {entry["from"] for entry in platform["files"]}


def test_the_demo_installs_only_what_it_needs() -> None:
    """Its lock file is part of the runtime's lock file, including hashes."""
    demo = (ROOT / "requirements-demo.lock").read_text()
    runtime = (ROOT / "requirements-runtime.lock").read_text()
    names = {line.split("==")[0] for line in demo.splitlines() if "==" in line}
    assert names == {"markdown-it-py", "mdurl", "msgspec", "numpy", "pygments", "pyyaml", "rich", "tzdata"}
    assert all(line in runtime for line in demo.splitlines())
