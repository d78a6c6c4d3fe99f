"""`dovetail plan`, `explain` and `place` from the command line: the promised JSON, text for people, exit status."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dovetail.cli.main import main
from dovetail.model import names
from dovetail.model.objects import Taint
from tests.support.captures import whole_capture
from tests.support.design_world import Town, kind

ACTION = {
    "action",
    "nodes",
    "replacements",
    "placements",
    "savingsPerHour",
    "requiredSavingsPerHour",
    "disruptionCost",
    "pods",
}


def _write(town: Town, folder: Path) -> list[str]:
    """Write a small cluster as kubectl and a catalogue file have it; return the options that name them."""
    items = [msgspec.to_builtins(item) for kind_ in _objects(town) for item in kind_]
    (folder / "cluster.json").write_text(json.dumps({"kind": "List", "items": [whole_capture(), *items]}, default=str))
    types = [
        {
            "name": entry.name,
            "requirements": [msgspec.to_builtins(r) for r in entry.requirements],
            "capacity": {key: f"{amount}m" if key == "cpu" else str(amount) for key, amount in entry.capacity.items()},
            "overhead": {},
            "offerings": [
                {"capacityType": o.capacity_type, "zone": o.zone, "price": o.price_float, "available": True}
                for o in entry.offerings
            ],
        }
        for entry in town.kinds.values()
    ]
    (folder / "catalog.json").write_text(json.dumps({"instanceTypes": types}))
    now = town.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return ["-f", str(folder / "cluster.json"), "--catalog", str(folder / "catalog.json"), "--now", now]


def _objects(town: Town) -> list[Any]:
    return [town.pools.values(), town.nodes.values(), town.claims.values(), town.pods.values(), town.others]


@pytest.fixture
def options(tmp_path: Path) -> Callable[[Town], list[str]]:
    """Return a function that writes a small cluster to files and returns the options that name them."""
    return lambda town: _write(town, tmp_path)


def _mixed() -> Town:
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0.001})
    town.node("idle", "m")
    town.node("wide", "l", zone="b")
    town.fill("wide", 2, cpu="1000m", spec={"nodeSelector": {names.ZONE: "b"}})
    town.node("held", "m")
    town.pod("precious", "held", annotations={names.DO_NOT_DISRUPT: "true"})
    town.pod("waiting", cpu="7000m", spec={"nodeSelector": {names.ZONE: "c"}})
    return town


def test_the_promised_keys(options: Callable[[Town], list[str]], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`plan -o json` has the keys of the contract, every method and every node."""
    assert main(["plan", *options(_mixed()), "--every-method", "--every-candidate", "-o", "json"]) == 0
    plan = json.loads(capsysbinary.readouterr().out)
    assert {"now", "profile", "actions", "methods", "nodes", "budgets", "warnings"} <= set(plan)
    assert plan["profile"] == "dovetail"
    assert [entry["method"] for entry in plan["methods"]] == ["empty", "expired", "drifted", "multiNode", "singleNode"]
    for entry in plan["methods"]:
        assert {"method", "reason", "candidates", "budget", "actions"} <= set(entry)
        assert ("perCandidate" in entry) == (entry["method"] in ("drifted", "singleNode"))
        for action in entry["actions"]:
            assert set(action) >= ACTION
    assert [action["action"] for action in plan["actions"]] == ["deleteEmpty"]
    single = plan["methods"][-1]
    assert set(single["candidates"][0]) == {"node", "nodePool", "price", "disruptionCost"}
    assert {"node", "action", "why"} == set(single["perCandidate"][0])
    replaced = single["perCandidate"][0]["action"]
    assert replaced["action"] == "replaceCost"
    assert {"nodePool", "instanceTypes", "capacityTypes", "zones", "requirements"} <= set(replaced["replacements"][0])
    assert replaced["savingsPerHour"] == "0.2"
    verdicts = {entry["name"]: entry["verdict"] for entry in plan["nodes"]}
    assert verdicts == {"held": "pod-do-not-disrupt", "idle": "eligible", "wide": "eligible"}
    for node in plan["nodes"]:
        assert {"gate", "passed", "why", "figures"} == set(node["gates"][0])
    assert {"nodePool", "reason", "allowed", "used", "left"} == set(plan["budgets"][0])


def test_only_the_acting_method_without_every_method(
    options: Callable[[Town], list[str]], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Without --every-method the round ends at the first method that acts; the others are listed without an action."""
    assert main(["plan", *options(_mixed()), "-o", "json"]) == 0
    plan = json.loads(capsysbinary.readouterr().out)
    assert [entry["method"] for entry in plan["methods"] if entry["actions"]] == ["empty"]


def test_a_plan_in_words(options: Callable[[Town], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """The text shows the commands, their savings, what blocks the other nodes and what to change first."""
    assert main(["plan", *options(_mixed())]) == 0
    text = capsys.readouterr().out
    assert "deleteEmpty idle" in text
    assert "saves $0.20/h" in text
    assert "pod-do-not-disrupt" in text
    assert "First thing to change" in text


def test_five_hundred_nodes_in_a_dozen_lines(
    options: Callable[[Town], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan stays one page long for any number of nodes: nodes are grouped by the gate that blocks them."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"consolidateAfter": "2h"})
    for number in range(500):
        town.node(f"n{number:03d}", "m")
        if number % 2:
            protected = {names.DO_NOT_DISRUPT: "true"} if number % 4 == 1 else {}
            town.pod(f"p{number}", f"n{number:03d}", annotations=protected)
    assert main(["plan", *options(town)]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) <= 12
    assert any(line.split()[:2] == ["375", "consolidate-after"] for line in lines)
    assert any(line.split()[:2] == ["125", "pod-do-not-disrupt"] for line in lines)


def test_explain_names_what_would_open_it(
    options: Callable[[Town], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """`explain` shows the gate, the policy with its sources, and the result of a simulation without the cause."""
    town = _mixed()
    assert main(["explain", "held", *options(town)]) == 0
    text = capsys.readouterr().out
    assert "pod-do-not-disrupt" in text
    assert "consolidationSavingsThreshold  0.001  (spec)" in text
    assert "if pod default/precious had no karpenter.sh/do-not-disrupt: it could go in a" in text


def test_explain_as_json(options: Callable[[Town], list[str]], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`explain -o json` has the same content for programs."""
    assert main(["explain", "held", *options(_mixed()), "-o", "json"]) == 0
    said = json.loads(capsysbinary.readouterr().out)
    assert said["verdict"] == "pod-do-not-disrupt"
    assert said["opens"][0]["opens"] is True
    assert said["policy"]["budgets"]["from"] == "spec"


def test_explain_shows_the_whole_policy(
    options: Callable[[Town], list[str]], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Every field that a pool sets is shown with its source; a rate budget with its time, a broken part as broken."""
    town = Town(kind("m", "0.20"))
    town.pool(
        disruption={
            "budgets": [{"nodes": "3", "per": "1h", "reasons": ["Underutilized"]}],
            "windows": [{"schedule": "0 2 * * *", "duration": "3h", "reasons": ["Drifted"]}],
            "minNodeAge": "10m",
            "health": {"notReadyNodes": "20%", "pendingPods": {"count": 5, "for": "2m"}, "movedPodsReadyWithin": "9m"},
            "repair": [{"condition": "Ready", "status": "False", "for": "30m", "drainFor": "5m"}],
        }
    )
    town.node("n", "m")
    assert main(["explain", "n", *options(town), "-o", "json"]) == 0
    policy = json.loads(capsysbinary.readouterr().out)["policy"]
    shown = {name: policy[name]["value"] for name in ("budgets", "windows", "minNodeAge", "health", "repair")}
    assert shown == {
        "budgets": ["nodes 3 per 1h for Underutilized"],
        "windows": ["'0 2 * * *' for 3h, for Drifted"],
        "minNodeAge": "10m",
        "health": "at most 20% nodes not ready; fewer than 5 pods unschedulable for 2m; moved pods ready within 9m",
        "repair": ["Ready False for 30m, drained for at most 5m"],
    }
    assert {policy[name]["from"] for name in shown} == {"spec"}


def _unreadable(**pool: Any) -> Town:
    """Return a pool whose policy can't be read, with two nodes that one could replace, and a pool that is fine."""
    town = Town(kind("m", "0.20", cpu=4), kind("s", "0.05", cpu=2))
    town.pool("broken", **pool)
    town.pool("fine")
    for name in ("a", "b"):
        town.node(name, "m", pool="broken")
        town.pod(f"pod-{name}", name, cpu="500m", nodeSelector={names.NODEPOOL: "broken"})
    town.node("empty", "m", pool="fine")
    return town


BROKEN = [
    pytest.param({"annotations": {names.POLICY_ANNOTATION: text}}, says, id=text)
    for text, says in (
        ("{", "is not YAML"),
        ("[1]", "is not one YAML or JSON map"),
        ("", "is not one YAML or JSON map"),
        ("{consolidateAfter: 5m, consolidateAfter: 6m}", "has consolidateAfter twice"),
        ("consolidationSavingsThreshold: -1", "consolidationSavingsThreshold (-1): is out of bounds"),
    )
]


@pytest.mark.parametrize(("pool", "says"), [*BROKEN, pytest.param(
    {"disruption": {"consolidationSavingsThreshold": "x", "consolidateAfter": "0s"}},
    'consolidationSavingsThreshold ("x"): must be a number', id="spec",
)])  # fmt: skip
def test_a_policy_that_can_not_be_read_holds_its_own_pool_only(
    pool: dict[str, Any], says: str, options: Callable[[Town], list[str]], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Every command answers; the nodes' sentence, the remedy and what mending it saves are about what can't be read."""
    given = options(_unreadable(**pool))

    def ask(*words: str) -> Any:
        assert main([*words, *given, "-o", "json"]) == 0
        return json.loads(capsysbinary.readouterr().out)

    plan, told = ask("plan"), ask("explain", "a")
    assert [entry["nodes"] for entry in plan["actions"]] == [["empty"]]
    assert [step["actions"][0]["nodes"] for step in ask("plan", "--to-end")["steps"]] == [["empty"]]
    assert any(says in text for text in plan["warnings"])
    assert (told["verdict"], says in told["why"]) == ("consolidate-after", True)
    assert told["policy"]["consolidateAfter"] == {"value": "Never", "from": "unreadable"}
    mended = [entry for entry in told["opens"] if entry["if"] == "if NodePool broken had nothing that can't be read"]
    assert [entry["gate"] for entry in mended] == ["eligible"]
    (blocker,) = ask("blockers")["blockers"]
    assert (blocker["name"], says in blocker["why"]) == ("broken", True)
    assert blocker["remedy"] == "mend the policy; dovetail validate says what is wrong with it"
    assert float(blocker["savingsPerHour"]) == 0.35
    assert main(["plan", *given]) == 0
    text = " ".join(capsysbinary.readouterr().out.decode().split())
    assert "First thing to change: NodePool broken (consolidate-after)" in text
    assert "Mend the policy" in text


@pytest.mark.parametrize("closing", [True, False])
def test_explain_says_what_is_closing(
    options: Callable[[Town], list[str]], capsys: pytest.CaptureFixture[str], closing: bool
) -> None:
    """A node with the soft taint of steering is shown with the reason; so is the next victim of a scale-down."""
    town = _mixed()
    if closing:
        node = town.nodes["wide"]
        taint = msgspec.convert({"key": names.CLOSING_TAINT, "effect": "PreferNoSchedule"}, Taint)
        town.nodes["wide"] = msgspec.structs.replace(
            node, spec=msgspec.structs.replace(node.spec, taints=(*node.spec.taints, taint))
        )
        pod = town.pods["wide-01"]
        marks = {names.POD_DELETION_COST: "-100", names.STEERING_MARK: "-100"}
        town.pods["wide-01"] = msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(pod.metadata, annotations=marks)
        )
    words = options(town)
    assert main(["explain", "wide", *words]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ("It is closing, so that it empties by itself: new pods prefer other nodes" in said) == closing
    assert ("Next victims of scale-downs: wide-01." in said) == closing
    assert main(["explain", "wide", *words, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["closing"] is closing


def test_explain_a_stranger(options: Callable[[Town], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """A missing node is wrong usage: one sentence with the most similar name."""
    assert main(["explain", "hold", *options(_mixed())]) == 2
    assert "did you mean held?" in capsys.readouterr().err


def test_place(options: Callable[[Town], list[str]], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`place -o json` lists where the pending pods would go."""
    assert main(["place", *options(_mixed()), "-o", "json"]) == 0
    said = json.loads(capsysbinary.readouterr().out)
    assert said == {
        "existing": [],
        "new": [{"nodePool": "default", "instanceTypes": ["l"], "pods": ["default/waiting"]}],
        "unplaced": [],
    }


def test_place_in_words(options: Callable[[Town], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """`place` prints where the pending pods would go."""
    assert main(["place", *options(_mixed())]) == 0
    assert capsys.readouterr().out.strip() == "a new l of NodePool default takes default/waiting"


def test_a_broken_pool_is_a_warning(
    options: Callable[[Town], list[str]], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A broken budget is a warning, and the exit status stays 0."""
    town = _mixed()
    town.pool(disruption={"budgets": [{"nodes": "5", "schedule": "0 99 * * *", "duration": "1h"}]})
    assert main(["plan", *options(town), "-o", "json"]) == 0
    assert any("schedule" in text for text in json.loads(capsysbinary.readouterr().out)["warnings"])


def test_to_the_end_as_json(options: Callable[[Town], list[str]], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`--to-end` adds `steps` and `end` to the plan."""
    assert main(["plan", *options(_mixed()), "--to-end", "-o", "json"]) == 0
    plan = json.loads(capsysbinary.readouterr().out)
    assert plan["steps"][0]["actions"] == plan["actions"]
    assert [step["actions"][0]["action"] for step in plan["steps"]] == ["deleteEmpty", "replaceCost"]
    assert plan["steps"][-1]["savedPerHour"] == plan["end"]["savedPerHour"] == "0.4"
    assert {"nodes", "costPerHour", "savedPerHour", "podsMoved", "commands"} <= set(plan["end"])


def test_compare_as_json(options: Callable[[Town], list[str]], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`--compare` adds the actions of the other profile and the nodes that differ."""
    assert main(["plan", *options(_mixed()), "--compare", "karpenter-1.15", "-o", "json"]) == 0
    compared = json.loads(capsysbinary.readouterr().out)["compare"]
    assert compared["profile"] == "karpenter-1.15"
    assert {"name", "verdict", "otherVerdict", "why"} <= set(compared["nodes"][0])


@pytest.mark.parametrize("form", ["text", "wide", "html"])
def test_every_method_and_candidate_are_shown(
    form: str, options: Callable[[Town], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Text and pages have what the JSON has: methods that are not the next to act, and each candidate alone."""
    assert main(["plan", *options(_mixed()), "-o", form]) == 0
    plain = capsys.readouterr().out
    assert main(["plan", *options(_mixed()), "--every-method", "--every-candidate", "-o", form]) == 0
    text = capsys.readouterr().out
    assert "replaceCost" in text
    assert "replaceCost" not in plain
    assert "Every method" in text
    assert "It is worth it." in text


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--rounds", "3"], "--rounds goes with --to-end"),
        (["--to-end", "--rounds", "0"], "write a whole number from 1"),
        (["--to-end", "--rounds", "many"], "--rounds"),
        (["--compare", "karpenter"], "there is no profile"),
    ],
)
def test_wrong_usage_of_the_new_options(
    extra: list[str], said: str, options: Callable[[Town], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage of the new options fails with one sentence and exit status 2."""
    assert main(["plan", *options(_mixed()), *extra]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("extra", [[], ["--to-end"], ["--compare", "karpenter-1.15"], ["--every-method"]])
def test_the_plan_fits_eighty_columns(
    extra: list[str], options: Callable[[Town], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """No line of the plan is wider than 80 columns."""
    assert main(["plan", *options(_mixed()), *extra]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_plan_as_yaml(options: Callable[[Town], list[str]], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`-o yaml` is the JSON document in YAML."""
    assert main(["plan", *options(_mixed()), "-o", "json"]) == 0
    as_json = json.loads(capsysbinary.readouterr().out)
    assert main(["plan", *options(_mixed()), "-o", "yaml"]) == 0
    assert yaml.safe_load(capsysbinary.readouterr().out) == as_json


def test_people_get_the_whole_first_and_programs_what_they_asked_for(
    options: Callable[[Town], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Text and page lead with all rounds; the page names the file; `plan -o json` has an `end` only with --to-end."""
    words = options(_mixed())
    assert main(["plan", *words]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("In all $")
    assert main(["plan", *words, "-o", "html"]) == 0
    title, _, rest = capsys.readouterr().out.partition("</h1>")
    assert " a month can be saved: " in title
    assert rest.startswith(f'<p class="lead">{Path(words[words.index("-f") + 1]).name}, by the rules of dovetail, at ')
    assert main(["plan", *words, "-o", "json"]) == 0
    assert "end" not in json.loads(capsys.readouterr().out)


def test_figures_of_the_end_say_that_they_are_of_the_end(
    options: Callable[[Town], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A blocker may hold back less once the rounds are done, so the text says which moment its dollars are of."""
    assert main(["plan", *options(_mixed())]) == 0
    now = capsys.readouterr().out
    assert "what these nodes cost now" in now
    assert "First thing to change:" in now
    assert main(["plan", *options(_mixed()), "--to-end"]) == 0
    then = " ".join(capsys.readouterr().out.split())
    assert "what these nodes cost then" in then
    assert "First thing to change after these rounds:" in then


def test_both_ends_are_compared(options: Callable[[Town], list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """`--to-end --compare` gives the other profile's end beside the own one, in JSON, text and page."""
    words = [*options(_mixed()), "--to-end", "--compare", "karpenter-1.15"]
    assert main(["plan", *words, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["compare"]["end"].keys() == found["end"].keys()
    assert {"savedPerMonth", "seconds", "expectedEnd", "pacedBy"} <= found["end"].keys()
    assert main(["plan", *words]) == 0
    text = capsys.readouterr().out
    assert "TAKES: about how long" in text
    assert main(["plan", *words, "-o", "html"]) == 0
    assert "karpenter-1.15, to the end: " in capsys.readouterr().out
