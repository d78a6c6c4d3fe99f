"""Which pods may not be moved: do-not-disrupt and PodDisruptionBudgets, rule by rule (docs/rules.md#gates, gate 6)."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.decide.facts.drainability import Guards, protection, unreadable_protection
from dovetail.model import names
from dovetail.model.objects import Pod, PodDisruptionBudget
from tests.support.design_world import Town, kind, stamp
from tests.support.nodes import NOW

HOUR = timedelta(hours=1)
START = NOW - HOUR


def _pod(labels: dict[str, str] | None = None, *, value: str | None = None, **parts: Any) -> Pod:
    """Return a running pod that started an hour ago, with these labels and this do-not-disrupt value."""
    annotations = {} if value is None else {names.DO_NOT_DISRUPT: value}
    meta = {"name": "p", "namespace": "default", "labels": labels or {}, "annotations": annotations}
    status = {"phase": "Running", "startTime": stamp(START), **parts.pop("status", {})}
    return msgspec.convert({"metadata": {**meta, **parts}, "status": status}, Pod, strict=False)


def _pdb(name: str, selector: Any, allowed: int = 0, namespace: str = "default", **spec: Any) -> PodDisruptionBudget:
    tree = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": selector, **spec},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(tree, PodDisruptionBudget, strict=False)


def _labels(**labels: str) -> dict[str, Any]:
    return {"matchLabels": labels}


ANY: dict[str, Any] = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
WEB = {"app": "web"}


@pytest.mark.parametrize(
    ("value", "held", "until"),
    [
        (None, False, None),
        ("true", True, None),
        ("false", False, None),
        ("61m", True, START + timedelta(minutes=61)),
        ("60m", False, None),
        ("3600000001us", True, NOW + timedelta(microseconds=1)),
        ("0s", False, None),
        ("-2h", False, None),
        ("perhaps", False, None),
    ],
)
def test_do_not_disrupt(value: str | None, held: bool, until: datetime | None) -> None:
    """do-not-disrupt protects a pod forever, or for a positive duration after the pod's start."""
    pod = _pod(value=value)
    found = protection(pod, NOW)
    assert (found is not None) is held
    if found is not None:
        assert (found.value, found.until) == (value, until)
    told = value if value in ("0s", "-2h", "perhaps") else None
    assert unreadable_protection(pod) == told


@pytest.mark.parametrize("value", ["true", "2h"])
def test_only_active_pods_are_protected(value: str) -> None:
    """A pod that ended or is being deleted protects nothing; a pod that has not started is protected."""
    assert protection(_pod(value=value, status={"phase": "Succeeded"}), NOW) is None
    assert protection(_pod(value=value, deletionTimestamp=stamp(NOW)), NOW) is None
    found = protection(_pod(value=value, status={"startTime": None}), NOW)
    assert found is not None
    assert found.until is None
    assert protection(_pod(value="1ns", status={"startTime": None}), NOW) is not None


def _vetoes(pdbs: list[PodDisruptionBudget], pod: Pod) -> tuple[tuple[str, ...], int] | None:
    veto = Guards(pdbs).veto(pod, NOW)
    return None if veto is None else (veto.pdbs, veto.allowed)


@pytest.mark.parametrize(
    ("pdbs", "vetoed"),
    [
        ([], None),
        ([_pdb("a", _labels(app="web"))], (("default/a",), 0)),
        ([_pdb("a", _labels(app="web"), allowed=1)], None),
        ([_pdb("a", _labels(app="db"))], None),
        ([_pdb("a", _labels(app="web", tier="x"))], None),
        ([_pdb("a", _labels(zone="x"))], None),
        ([_pdb("a", None)], None),
        ([_pdb("a", {})], (("default/a",), 0)),
        ([_pdb("a", ANY)], (("default/a",), 0)),
        ([_pdb("a", {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]})], None),
        ([_pdb("a", _labels(app="web"), namespace="other")], None),
        ([_pdb("a", ANY, namespace="other")], None),
        ([_pdb("b", _labels(app="web"), 1), _pdb("a", ANY, 1)], (("default/a", "default/b"), 0)),
        ([_pdb("b", _labels(app="web"), 1), _pdb("a", _labels(app="web"), 1)], (("default/a", "default/b"), 0)),
        ([_pdb("a", _labels(app="db")), _pdb("b", _labels(app="web"))], (("default/b",), 0)),
        ([_pdb("a", _labels(app="web")), _pdb("b", _labels(app="db"))], (("default/a",), 0)),
        ([_pdb("a", _labels(app="web"), 1), _pdb("b", _labels(app="db"))], None),
        ([_pdb("a", _labels(app="web"), 1), _pdb("b", _labels(tier="front"))], None),
        ([_pdb("a", _labels(app="web"), 1), _pdb("b", {}, 1)], (("default/a", "default/b"), 0)),
        ([_pdb("a", _labels(app="web"), 1), _pdb("b", _labels(app="web"), 1, namespace="other")], None),
    ],
)
def test_which_pdbs_veto(pdbs: list[PodDisruptionBudget], vetoed: Any) -> None:
    """A PDB that allows nothing blocks its pods; two PDBs on one pod always block it."""
    assert _vetoes(pdbs, _pod(WEB)) == vetoed


@pytest.mark.parametrize(
    ("policy", "ready", "kept"),
    [
        ("AlwaysAllow", "False", False),
        ("AlwaysAllow", "True", True),
        ("AlwaysAllow", None, True),
        ("IfHealthyBudget", "False", True),
    ],
)
def test_unready_pods_may_be_evicted(policy: str, ready: str | None, kept: bool) -> None:
    """A PDB with AlwaysAllow does not block unready pods."""
    said = [{"type": "Other", "status": "False"}, *([{"type": "Ready", "status": ready}] if ready else [])]
    pod = _pod(WEB, status={"conditions": said})
    pdb = _pdb("a", _labels(app="web"), unhealthyPodEvictionPolicy=policy)
    assert (_vetoes([pdb], pod) is not None) is kept


@pytest.mark.parametrize(
    "pod",
    [
        _pod(WEB, status={"phase": "Failed"}),
        _pod(WEB, deletionTimestamp=stamp(NOW)),
        _pod(WEB, ownerReferences=[{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}]),
        _pod(WEB, value="true"),
    ],
    ids=["ended", "leaving", "mirror", "protected"],
)
def test_pods_that_nobody_evicts_are_not_asked(pod: Pod) -> None:
    """PDBs apply only to pods that a drain would evict."""
    pdb = _pdb("a", _labels(app="web"))
    assert _vetoes([pdb], pod) is None
    assert _vetoes([pdb], _pod(WEB, value="perhaps")) is not None


def test_a_pod_that_tolerates_disruption_is_not_asked() -> None:
    """PDBs do not apply to a pod that tolerates the disruption taint, since Karpenter does not evict it."""
    pod = _pod(WEB)
    spec = msgspec.convert({"tolerations": [{"operator": "Exists"}]}, type(pod.spec), strict=False)
    assert _vetoes([_pdb("a", _labels(app="web"))], msgspec.structs.replace(pod, spec=spec)) is None


def test_guards_are_renewed() -> None:
    """New versions of the same PDBs are counted again without a recompile; other PDBs are compiled."""
    old = [_pdb("a", _labels(app="web"), 1), _pdb("b", _labels(app="db"), 1)]
    guards = Guards(old)
    assert not guards.refusing
    assert guards.over([_pod(WEB), _pod({"app": "db"}), _pod()]) == {"default/a", "default/b"}
    fewer, _ = guards.renewed([_pdb("a", _labels(app="web"), 0), old[1]])
    assert fewer.veto(_pod(WEB), NOW) is not None
    left = fewer.refusing.by_label
    assert {name: {key: set(values) for key, values in found.items()} for name, found in left.items()} == {
        "default": {"app": {"web"}}
    }
    assert guards.veto(_pod(WEB), NOW) is None
    assert fewer.matching(_pod(WEB))[0] is guards.matching(_pod(WEB))[0]
    for changed in (
        [_pdb("a", _labels(app="web"), 0)],
        [_pdb("a", _labels(app="x"), 0), old[1]],
        [_pdb("c", _labels(app="web"), 0), old[1]],
    ):
        newer, _ = guards.renewed(changed)
        assert newer.over([_pod(WEB), _pod({"app": "db"})]) == Guards(changed).over([_pod(WEB), _pod({"app": "db"})])


@pytest.mark.parametrize(
    ("allowed", "words"),
    [((0,), "PodDisruptionBudget"), ((5, 5), "has 2 PodDisruptionBudgets (default/guard-0, default/guard-1)")],
)
def test_two_pdbs_on_one_pod_are_told_as_such(allowed: tuple[int, ...], words: str) -> None:
    """The eviction API refuses a pod with two PDBs; the verdict says that and names both."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("n", "m")
    town.pod("p", "n", labels={"app": "web"})
    for number, count in enumerate(allowed):
        town.pdb(f"guard-{number}", {"app": "web"}, allowed=count)
    (entry,) = town.round(every_method=True).verdicts
    assert entry.verdict == "pdb"
    assert words in entry.why
    assert ("has 2" in entry.why) == (len(allowed) > 1)
