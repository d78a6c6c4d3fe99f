"""The value sets of deploy/chart/dovetail/ci: Helm finds nothing wrong, and an API server takes every object."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from tools.ship import where

from dovetail.api.settings import load_settings
from dovetail.model.settings import RECOMMENDED_NAME
from tests.support.chart import CHART, NAMESPACE, one, render, script, tool
from tests.support.control_plane import ControlPlane

SETS = sorted((CHART / "ci").glob("*-values.yaml"))
OF_AN_OPERATOR = ("ServiceMonitor", "PrometheusRule")


def test_there_are_ten() -> None:
    """Each is another way to use the chart."""
    assert len(SETS) == 10


@pytest.mark.parametrize("values", SETS, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_a_value_set_is_accepted(values: Path, api_server: ControlPlane) -> None:
    """`helm lint --strict` passes, and the API server validates every object strictly: unknown fields are errors."""
    lint = [tool("helm"), "lint", "--strict", "--values", values, CHART]
    done = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    trees = [tree for tree in render("--values", str(values)) if tree["kind"] not in OF_AN_OPERATOR]
    with api_server.client() as admin:
        admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for tree in trees:
            status, answer = admin.create(tree, dryRun="All", fieldValidation="Strict")
            assert status in (201, 409), (tree["kind"], answer)


def test_recommended_is_one_value(tmp_path: Path) -> None:
    """`recommended: true` gives the policy and its two rights; settings of one's own win over it."""
    trees = render("--set=observe=false", "--set=recommended=true", "--set=settings.jobsWait=false")
    path = tmp_path / "settings.yaml"
    path.write_text(one(trees, "ConfigMap", "dovetail")["data"]["settings.yaml"])
    settings, named = load_settings(str(path)), load_settings(None, policy=RECOMMENDED_NAME)
    assert named.jobs_wait
    assert not settings.jobs_wait
    assert settings.search == named.search
    rules = one(trees, "ClusterRole", "dovetail-acting")["rules"]
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]} in rules
    assert {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]} in rules
    plain = render("--set=observe=false")
    assert "base" not in one(plain, "ConfigMap", "dovetail")["data"]["settings.yaml"]
    assert not any("pods" in rule["resources"] for rule in one(plain, "ClusterRole", "dovetail-acting")["rules"])


def test_the_plain_manifests_can_be_installed(api_server: ControlPlane) -> None:
    """Each file of deploy/manifests is what the chart renders, and the server takes every object of it."""
    builder = script("build_manifests")
    tool("helm")
    for path, options in builder.FILES.items():
        assert path.read_text() == builder.manifests(*options), "run: python tools/build_manifests.py"
        with api_server.client() as admin:
            for tree in yaml.safe_load_all(path.read_text()):
                status, answer = admin.create(tree, dryRun="All", fieldValidation="Strict")
                assert status in (201, 404, 409), (path.name, answer)


def test_a_setting_that_the_controller_would_refuse_is_refused_by_helm() -> None:
    """The schema knows the name of every setting; a typo stops Helm."""
    command = [tool("helm"), "template", CHART, "--kube-version", "1.36.3", "--set", "settings.pollIntervall=5s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "pollIntervall" in done.stderr


def test_readme_and_schema_follow_from_the_values() -> None:
    """README and schema are what tools/build_chart.py writes; every value is in both; addresses are the release's."""
    builder = script("build_chart")
    text = (CHART / "values.yaml").read_text()
    assert (CHART / "README.md").read_text() == builder.readme(text), "run: python tools/build_chart.py"
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema == builder.schema(schema), "run: python tools/build_chart.py"
    assert yaml.safe_load(text).keys() | {"global"} == schema["properties"].keys()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    places = where()
    assert chart["home"] == f"{places['FORGE']}/{places['OWNER']}/{places['REPOSITORY']}"
    assert chart["sources"] == [chart["home"]]
    assert chart["maintainers"]
    assert chart["icon"].endswith("/docs/images/icon.svg")
    assert {name.partition("/")[0] for name in chart["annotations"]} == {"artifacthub.io"}
