"""Details that confuse a new user; each of them was wrong once."""

import argparse
import json
import shlex
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from dovetail.cli.main import build_parser, main
from dovetail.cli.simulation.simulate import again
from dovetail.decide.words import dollars
from dovetail.model.money import parse_money
from dovetail.sim.pages.comparison import PolicyPage, sentence
from tests.cli.test_plan_command import _write
from tests.support.design_world import Town, kind


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("9.586156", "$9.59"),
        ("20.0215", "$20.02"),
        ("132.4764", "$132.5"),
        ("100", "$100"),
        ("1234.56", "$1,235"),
        ("0.152026", "$0.152"),
        ("0.1", "$0.10"),
        ("0.00005", "$0.00005"),
        ("0.0000123456", "$0.000012"),
        ("0", "$0.00"),
        ("-0.25", "-$0.25"),
    ],
)
def test_money_in_sentences_has_four_digits_at_most(amount: str, shown: str) -> None:
    """Amounts are rounded to four significant digits for people, and a very small amount keeps two."""
    assert dollars(parse_money(Decimal(amount))) == shown


def test_the_page_repeats_with_what_was_given(tmp_path: Path) -> None:
    """The suggested command names the file and every option that changes the result, and it runs."""
    file = tmp_path / "my scenario.yaml"
    words = ["simulate", str(file), "--policy", "a=b.yaml", "--until", "2h", "--seed", "3"]
    args = build_parser(words).parse_args(words)
    repeat = shlex.split(again(args))
    assert repeat[0] == "dovetail"
    assert vars(build_parser(repeat[1:]).parse_args(repeat[1:])) == vars(args)


def test_short_lives_are_not_a_part_of_the_new_nodes() -> None:
    """An existing node can also live under 15 minutes: 0 new nodes, 1 short life."""
    result: Any = SimpleNamespace(
        policy="karpenter-1.15",
        pods_disrupted=3,
        pods_disrupted_more_than_once=0,
        nodes_started=0,
        short_lived_nodes=1,
        cost=10**18,
    )
    said = sentence(PolicyPage(scenario="s", about="", seed=0, seconds=3600, results=[result]))
    assert "of which" not in said
    assert "0 new nodes; 1 node lived under 15 minutes" in said


def _pool(**disruption: Any) -> dict[str, Any]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "web"},
        "spec": {"disruption": disruption, "template": {"spec": {"requirements": [], "nodeClassRef": reference}}},
    }


def test_budgets_of_a_pool_without_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file with only NodePools shows each budget; numbering starts at 1."""
    file = tmp_path / "nodepools.yaml"
    file.write_text(yaml.safe_dump(_pool(budgets=[{"nodes": "10%"}, {"nodes": "0", "reasons": ["Drifted"]}])))
    assert main(["budgets", "-f", str(file), "--now", "2026-03-14T15:30:00Z", "--tz", "UTC"]) == 0
    out = capsys.readouterr().out
    assert "10% of the nodes (budget 1) now" in out
    assert "Drifted: 0 (budget 2) now" in out
    assert "budget 0" not in out


def test_a_pool_without_required_fields_is_a_warning_of_plan(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """`plan` warns of what `validate` rejects."""
    town = Town(kind("m", "0.20"))
    town.pool()
    options = _write(town, tmp_path)
    tree = json.loads((tmp_path / "cluster.json").read_text())
    for item in tree["items"]:
        if item["kind"] == "NodePool":
            del item["spec"]["template"]["spec"]["nodeClassRef"]
    (tmp_path / "cluster.json").write_text(json.dumps(tree))
    assert main(["plan", *options, "-o", "json"]) == 0
    warnings = json.loads(capsysbinary.readouterr().out)["warnings"]
    assert any("nodeClassRef is missing" in text for text in warnings)


def test_the_expired_gate_reads_as_a_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The gate reads `expired yes`, not `pass not-expired: It expired 1d2h ago`."""
    from datetime import timedelta

    town = Town(kind("m", "0.20"))
    town.pool(disruption={"expireAfter": "24h"})
    town.node("old", "m", age=timedelta(hours=50), life="720h")
    town.pod("p", "old")
    assert main(["explain", "old", *_write(town, tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "not-expired" not in out
    assert "yes   expired" in out


def test_arguments_are_a_namespace() -> None:
    """`again` accepts the parser's namespace."""
    args = argparse.Namespace(scenario="issue-7146", policy=[], until=None, trace=None, seed=0, catalog=None)
    assert again(args) == "dovetail simulate issue-7146 --seed 0"
