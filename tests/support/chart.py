"""The chart as tests see it: rendered by Helm itself, and the tools that they need."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.paths import ROOT
from tests.support.control_plane import assets_folder

Tree = dict[str, Any]
CHART = ROOT / "deploy" / "chart" / "dovetail"
NAMESPACE = "dovetail"


def tool(name: str) -> Path:
    """Return a program of `make assets`; the test skips, or fails where skipping was ruled out, without it."""
    path = assets_folder() / name
    if not os.access(path, os.X_OK):
        reason = f"{name} is not there: run `make assets`"
        if os.environ.get("DOVETAIL_REQUIRE_ASSETS"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return path


def script(name: str) -> ModuleType:
    """Return a module of tools/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def render(*options: str, name: str = "dovetail", namespace: str = NAMESPACE) -> list[Tree]:
    """Return the chart's objects with these options of Helm."""
    tool("helm")
    trees: list[Tree] = script("build_manifests").render(*options, name=name, namespace=namespace)
    return trees


def one(trees: list[Tree], kind: str, name: str | None = None) -> Tree:
    """Return the only object of a kind, or the one with that name."""
    found = [tree for tree in trees if tree["kind"] == kind and name in (None, tree["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} {kind}"
    return found[0]


def pod_specs(trees: list[Tree]) -> Iterator[tuple[str, Tree]]:
    """Yield every pod that the chart makes: the controller's and the hook's."""
    for tree in trees:
        if "template" in (tree.get("spec") or {}):
            yield tree["kind"], tree["spec"]["template"]["spec"]


def atoms(role: Tree) -> Iterator[tuple[int, str, str, str]]:
    """Yield each single permission of a role: number of the rule, group, resource, verb."""
    for number, rule in enumerate(role["rules"]):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield number, group, resource, verb


def without(role: Tree, atom: tuple[int, str, str, str]) -> Tree:
    """Return the role less one single permission."""
    number, group, resource, verb = atom
    rules = []
    for place, rule in enumerate(role["rules"]):
        if place != number:
            rules.append(rule)
            continue
        others = [entry for entry in rule["resources"] if entry != resource]
        if others:
            rules.append({**rule, "resources": others})
        verbs = [entry for entry in rule["verbs"] if entry != verb]
        if verbs:
            rules.append({**rule, "apiGroups": [group], "resources": [resource], "verbs": verbs})
    return {**role, "rules": rules}
