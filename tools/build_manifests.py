"""Writes the plain manifests from the chart, for those without Helm: python tools/build_manifests.py.

The chart's defaults, in the namespace `dovetail`, which is made too; the same with `observe: false`, which acts and has the
rights for it; and the recommended policy, which acts and has the rights that it needs. The pre-delete hook is Helm's: without it one runs
`dovetail release --all --stop-controller dovetail/dovetail` before deleting (docs/install.md).
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy" / "chart" / "dovetail"
OUT = ROOT / "deploy" / "manifests" / "dovetail.yaml"
ACTING = ROOT / "deploy" / "manifests" / "dovetail-acting.yaml"
RECOMMENDED = ROOT / "deploy" / "manifests" / "dovetail-recommended.yaml"
FILES = {
    OUT: (),
    ACTING: ("--set=observe=false",),
    RECOMMENDED: ("--set=observe=false", "--set=recommended=true"),
}
HEAD = """\
# Made from the chart by tools/build_manifests.py; change the chart instead. Read docs/install.md first: name your image,
# and before you delete this run: dovetail release --all --stop-controller dovetail/dovetail
"""
OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/chart")


def helm() -> Path:
    """Return the program that `make assets` builds."""
    return Path(os.environ.get("KUBEBUILDER_ASSETS") or ROOT / ".assets") / "helm"


def render(*options: str, name: str = "dovetail", namespace: str = "dovetail") -> list[dict[str, Any]]:
    """Return the chart's objects, hooks too, as Helm would make them."""
    command = [helm(), "template", name, CHART, "--namespace", namespace, "--kube-version", "1.36.3", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [tree for tree in yaml.safe_load_all(done.stdout) if tree]


def is_hook(tree: dict[str, Any]) -> bool:
    """Return whether Helm runs it at some point instead of keeping it."""
    return "helm.sh/hook" in (tree["metadata"].get("annotations") or {})


def manifests(*options: str) -> str:
    """Return the file's text, with these options of Helm."""
    trees: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dovetail"}}]
    trees += [tree for tree in render(*options) if not is_hook(tree)]
    for tree in trees:
        for labels in (tree["metadata"].get("labels"), _template_labels(tree)):
            for key in OF_HELM:
                (labels or {}).pop(key, None)
    return HEAD + yaml.safe_dump_all(trees, sort_keys=False, width=120)


def _template_labels(tree: dict[str, Any]) -> dict[str, str] | None:
    labels: dict[str, str] | None = (tree.get("spec") or {}).get("template", {}).get("metadata", {}).get("labels")
    return labels


if __name__ == "__main__":
    OUT.parent.mkdir(parents=True, exist_ok=True)
    for path, options in FILES.items():
        path.write_text(manifests(*options))
