"""`dovetail crds --from`: the CRDs of the Karpenter that runs, with Dovetail's fields."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.api.crds.definitions import crds
from dovetail.api.crds.enrich import enriched
from dovetail.cli.main import main

CRD = "{kind: CustomResourceDefinition, apiVersion: a/v1"
MODULES = Path(os.environ.get("KARPENTER_MODULES", Path.home() / "go/pkg/mod/sigs.k8s.io"))
FOUND = sorted(MODULES.glob("karpenter@v1.*/pkg/apis/crds/karpenter.sh_node*s.yaml")) if MODULES.is_dir() else []
REAL = [path for path in FOUND if path.stem in ("karpenter.sh_nodepools", "karpenter.sh_nodeclaims")]


def _older() -> dict[str, Any]:
    """Return Dovetail's CRD as an older Karpenter would have it: without its fields, with fewer words."""
    crd = crds()[0]
    policy = _disruption(crd)
    for name in set(policy["properties"]) - {"budgets", "consolidateAfter", "consolidationPolicy"}:
        del policy["properties"][name]
    policy["properties"]["consolidationPolicy"]["enum"] = ["WhenEmpty", "WhenEmptyOrUnderutilized"]
    del policy["properties"]["consolidateAfter"]["default"]
    policy |= {"required": ["consolidateAfter"], "default": {"consolidateAfter": "0s"}}
    budget = policy["properties"]["budgets"]["items"]
    for name in ("topologyKey", "sequential", "per"):
        del budget["properties"][name]
    budget["properties"]["reasons"]["items"]["enum"] = ["Underutilized", "Empty", "Drifted"]
    crd["metadata"]["labels"] = {"theirs": "kept"}
    return crd


def _disruption(crd: dict[str, Any]) -> dict[str, Any]:
    version = next(entry for entry in crd["spec"]["versions"] if entry["name"] == "v1")
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["disruption"]
    return found


def test_an_older_schema_keeps_its_words_and_gets_the_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Enumerations, defaults and labels of the older version stay; every field of Dovetail is added."""
    file = tmp_path / "crd.yaml"
    file.write_text(yaml.safe_dump(_older()))
    assert main(["crds", "--from", str(file)]) == 0
    (made,) = yaml.safe_load_all(capsys.readouterr().out)
    policy, own = _disruption(made), _disruption(crds()[0])
    assert made["metadata"]["labels"] == {"theirs": "kept"}
    assert set(policy["properties"]) == set(own["properties"])
    assert policy["required"] == ["consolidateAfter"]
    assert policy["default"] == {"consolidateAfter": "0s"}
    assert "default" not in policy["properties"]["consolidateAfter"]
    assert "Balanced" not in policy["properties"]["consolidationPolicy"]["enum"]
    budget = policy["properties"]["budgets"]["items"]["properties"]
    assert budget["reasons"]["items"]["enum"] == ["Underutilized", "Empty", "Drifted", "Expired"]
    assert {"topologyKey", "sequential", "per"} <= set(budget)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("{kind: ConfigMap, apiVersion: v1, metadata: {name: a}}", "something else than Karpenter's CRDs"),
        ("{kind: CustomResourceDefinition, apiVersion: a/v1, metadata: {name: pods.example.com}}", "something else"),
        (
            "{kind: CustomResourceDefinition, apiVersion: a/v1, metadata: {name: nodepools.karpenter.sh}}",
            "no version v1",
        ),
        (
            f"{CRD}, metadata: {{name: nodepools.karpenter.sh}}, spec: {{versions: [{{name: v1}}]}}}}",
            "the schema has no",
        ),
        ("a: [", "crd.yaml"),
    ],
)
def test_what_is_no_crd_is_refused(text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file without Karpenter's CRDs is one sentence that names it, and status 2."""
    file = tmp_path / "crd.yaml"
    file.write_text(text)
    assert main(["crds", "--from", str(file)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


@pytest.mark.skipif(not REAL, reason="needs Karpenter's modules (KARPENTER_MODULES)")
@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{path.parents[3].name} {path.stem}")
def test_real_crds_keep_every_field(path: Path) -> None:
    """Of each version's CRDs every field stays, with its type, and Dovetail's are added."""
    theirs = yaml.safe_load(path.read_text())
    made = enriched(theirs, path.name)
    assert _fields(theirs) <= _fields(made)
    if path.stem.endswith("nodepools"):
        assert "spec.disruption.consolidationGracePeriod" in {name for name, _ in _fields(made)}
        policies = _disruption(theirs)["properties"]["consolidationPolicy"]["enum"]
        assert _disruption(made)["properties"]["consolidationPolicy"]["enum"] == [*policies, "WhenUnderutilized"]


def _fields(crd: dict[str, Any]) -> set[tuple[str, str]]:
    version = next(entry for entry in crd["spec"]["versions"] if entry["name"] == "v1")
    found: set[tuple[str, str]] = set()

    def walk(schema: dict[str, Any], path: str) -> None:
        found.add((path, str(schema.get("type"))))
        for name, part in schema.get("properties", {}).items():
            walk(part, f"{path}.{name}".lstrip("."))
        if isinstance(schema.get("items"), dict):
            walk(schema["items"], f"{path}[]")

    walk(version["schema"]["openAPIV3Schema"], "")
    return found
