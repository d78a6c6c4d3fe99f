"""`whatif` of what `whatif` printed says the same, on ten golden clusters; nothing else than that was simulated."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.cli.main import main
from dovetail.model import names
from tests.paths import SHARED, needs_shared

CASES = ("000", "003", "004", "006", "007", "010", "024", "040", "048", "051")
CHANGES = {
    "000": ("consolidateAfter=10m",),
    "003": ("consolidationGracePeriod=10m",),
    "004": ("base=recommended",),
    "006": ('budgets=[{nodes: "1"}]',),
    "007": ("base=recommended", "consolidateAfter=1m"),
    "010": ("manage=true", "stabilization={cost: 1m}"),
    "024": ("base=recommended", "pollInterval=20s"),
    "040": ("consolidationPolicy=WhenEmptyOrUnderutilized",),
    "048": ("manage=true",),
    "051": ('budgets=[{nodes: "100%", topologyKey: topology.kubernetes.io/zone}]',),
}
pytestmark = [needs_shared, pytest.mark.usefixtures("one_core")]


def _ask(words: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    assert main(["whatif", *words, "--for", "45m", "--seeds", "2", "-o", "json"]) == 0
    return json.loads(capsysbinary.readouterr().out)


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key != "policy"}


@pytest.mark.parametrize("case", CASES)
def test_a_second_whatif_of_what_it_printed_says_the_same(
    case: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The printed patch and settings, asked about again, give the same answer; applied, they are today's policy."""
    folder = SHARED / "golden" / case
    inputs = ["--catalog", str(folder / "catalog.json.gz")]
    cluster = folder / "cluster.json.gz"
    changes = [word for change in CHANGES[case] for word in ("--set", change)]
    first = _ask(["-f", str(cluster), *inputs, *changes], capsysbinary)

    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump(first["settings"]))
    fields = first["patch"].get("spec", {}).get("disruption", {})
    again = [f"{key}={json.dumps(value) if isinstance(value, list) else value}" for key, value in fields.items()]
    if names.MANAGE in first["patch"].get("metadata", {}).get("labels", {}):
        again.append("manage=true")
    words = [word for change in again for word in ("--set", change)]
    second = _ask(["-f", str(cluster), *inputs, "--settings", str(settings), *words], capsysbinary)
    for key in ("today", "calibration", "baseline", "karpenter", "changed", "recommendation", "patch", "settings"):
        assert second[key] == first[key], key

    applied = tmp_path / "applied.json"
    applied.write_text(json.dumps(_applied(json.loads(gzip.decompress(cluster.read_bytes())), first["patch"])))
    third = _ask(
        ["-f", str(applied), *inputs, "--settings", str(settings), "--set", "consolidateAfter=3m"], capsysbinary
    )
    assert third["managed"]["today"] == first["managed"]["changed"]
    assert _figures(third["baseline"]) == _figures(first["changed"])


def _applied(tree: Any, patch: Any) -> Any:
    for item in tree["items"]:
        if item["kind"] == "NodePool":
            _merge(item, patch)
    return tree


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a JSON merge patch, as kubectl does."""
    for key, value in patch.items():
        if isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value
