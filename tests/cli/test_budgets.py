"""`dovetail budgets` on files."""

import json
from pathlib import Path

import pytest

from dovetail.cli.main import main

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: web}
spec:
  disruption:
    budgets:
    - {nodes: "0", schedule: "0 9 * * mon-fri", duration: 8h}
    - {nodes: "4"}
  template: {spec: {requirements: [], nodeClassRef: {group: g, kind: k, name: c}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return a file with one pool that allows no disruption in business hours."""
    path = tmp_path / "pool.yaml"
    path.write_text(POOL)
    return str(path)


def test_drawn_in_the_chosen_time_zone(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """9:00 UTC is 11:00 in Berlin in May, and the chart shows both."""
    arguments = ["budgets", "-f", file, "--now", "2026-05-13T06:00:00Z", "--days", "1", "--tz", "Europe/Berlin"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "Wed 11:00 to Wed 19:00: 0 (budget 1)" in shown
    day = next(line for line in shown.splitlines() if line.strip().startswith("Wed 05-13"))
    slots = day.split("05-13  ")[1]
    assert slots[22:38] == "0" * 16
    assert slots[21] == "4"


def test_json_has_every_reason_now_and_later(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON lists the number allowed now and each period, with the index of the budget that decides."""
    assert main(["budgets", "-f", file, "--now", "2026-05-13T10:00:00Z", "--tz", "UTC", "-o", "json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    (pool,) = tree["pools"]
    assert {entry["reason"]: entry["allowed"] for entry in pool["now"]} == dict.fromkeys(
        ("Empty", "Expired", "Drifted", "Underutilized"), 0
    )
    first = next(entry for entry in pool["calendar"] if entry["reason"] == "Empty")
    assert (first["to"], first["budget"]) == ("2026-05-13T17:00:00+00:00", 0)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (["--days", "0"], "from 1 to"),
        (["--tz", "Mars/Olympus"], "not a time zone"),
        (["--now", "tea"], "time with its zone"),
    ],
)
def test_wrong_options_get_one_sentence(
    file: str, extra: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong option fails with one sentence and exit status 2."""
    assert main(["budgets", "-f", file, *extra]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1


def test_an_amount_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node whose capacity is not a quantity fails with one sentence that names node and field, and exit status 2."""
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": {"template": {}}}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"capacity": {"cpu": ""}, "allocatable": {"cpu": "1"}},
    }
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "items": [pool, node]}))
    assert main(["budgets", "-f", str(file)]) == 2
    assert capsys.readouterr().err.startswith("dovetail: Node n: status.capacity.cpu: '' is not a quantity")


def test_when_a_budget_is_active(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A budget shows if it is active and when that changes: the weekday within a week, otherwise the date."""
    budgets = [
        {"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"},
        {"nodes": "1", "schedule": "0 0 1 1 *", "duration": "24h"},
        {"nodes": "10%"},
    ]
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}}
    file = tmp_path / "pool.json"
    file.write_text(json.dumps({**pool, "spec": {"template": {}, "disruption": {"budgets": budgets}}}))
    assert main(["budgets", "-f", str(file), "--tz", "UTC", "--now", "2026-11-16T10:00:00Z", "--days", "1"]) == 0
    said = capsys.readouterr()
    assert 'budget 1: 0 nodes, "0 9 * * mon-fri" for 8h, all reasons (active until Mon 17:00)' in said.out
    assert 'budget 2: 1 node, "0 0 1 1 *" for 24h, all reasons (not active before Fri 2027-01-01 00:00)' in said.out
    assert said.err == "note: there is no Node in the input, so percentages come to 0\n"
