"""The facts of a node: times, costs, sums over its pods, and how they are read from its objects."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.facts import reading
from dovetail.decide.facts.cost import UNIT, cost_reading
from dovetail.decide.facts.drainability import Guards
from dovetail.decide.facts.node_facts import NodeFacts, Timer, is_length, read_expiry
from dovetail.decide.facts.pod_sums import PodSums
from dovetail.decide.in_flight import InFlight
from dovetail.decide.scene import Scene
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import (
    Deployment,
    Node,
    NodeClaim,
    ObjectMeta,
    OwnerReference,
    Pod,
    ReplicaSet,
    Taint,
)
from dovetail.model.policies.controls import RepairRule
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.rules import DOVETAIL_RULES
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from dovetail.scheduling.pods.classes import DAEMON, RESCHEDULABLE, TERMINAL
from dovetail.scheduling.pods.surge import NO_SURGES, Surge, Surges
from tests.support.design_world import LeavingNode, Town, kind, stamp
from tests.support.nodes import NOW, facts_of, minutes

MINUTE = 60 * 10**9
HOUR = 60 * MINUTE
BORN = NodeClaim(metadata=ObjectMeta(name="c", creation_timestamp=NOW - minutes(15)))
POD = Pod(metadata=ObjectMeta(name="p", namespace="d"))


@pytest.mark.parametrize(
    ("text", "span"),
    [(None, None), ("", None), ("Never", None), ("2m", 2 * MINUTE), ("1h2m", 62 * MINUTE), ("x", None)],
)
def test_lengths(text: str | None, span: int | None) -> None:
    """A duration that cannot be read is None."""
    assert read_expiry(text) == span
    assert text is None or is_length(text) is (span is not None)


def test_a_timer_runs_until_its_end() -> None:
    """A timer is over exactly at its end."""
    timer = Timer(since=NOW, period=1, until=NOW + minutes(1))
    assert [timer.running(NOW + minutes(each)) for each in (0, 0.9, 1, 2)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("period", "event", "there"), [(None, NOW, False), (0, NOW, False), (MINUTE, None, False), (MINUTE, NOW, True)]
)
def test_timers(period: int | None, event: datetime | None, there: bool) -> None:
    """A timer needs a period and an event; static pools and nodes without a policy have none."""
    node = facts_of(last_event=event, policy=DisruptionPolicy(consolidate_after=period, grace_period=period))
    timer = Timer(since=NOW, period=MINUTE, until=NOW + minutes(1)) if there else None
    assert (node.consolidate_after, node.grace_period) == (timer, timer)
    assert node.hidden_until == (None if timer is None else timer.until)
    static = DisruptionPolicy(consolidate_after=period, grace_period=period, static=True)
    for other in (facts_of(last_event=event, policy=static), facts_of(last_event=event, policy=None)):
        assert (other.consolidate_after, other.grace_period) == (None, None)


def _condition(status: str, ago: int | None) -> dict[str, str]:
    return {"status": status, **({} if ago is None else {"lastTransitionTime": stamp(NOW - minutes(ago))})}


@pytest.mark.parametrize(
    ("conditions", "index", "due"),
    [
        ({}, None, None),
        ({"Ready": _condition("True", 5)}, None, None),
        ({"Ready": _condition("False", None)}, None, None),
        ({"Ready": _condition("False", 5)}, 1, 5),
        ({"Ready": _condition("False", 5), "Disk": _condition("True", 16)}, 0, 4),
        ({"Ready": _condition("False", 5), "Disk": _condition("True", 15)}, 0, 5),
        ({"Ready": _condition("False", 5), "Disk": _condition("True", 14)}, 1, 5),
    ],
)
def test_sickness(conditions: dict[str, dict[str, str]], index: int | None, due: int | None) -> None:
    """The repair rule that is due first counts, of equal rules the first; a condition needs a time."""
    rules = (
        RepairRule(index=0, condition="Disk", status="True", lasting=20 * MINUTE),
        RepairRule(index=1, condition="Ready", status="False", lasting=10 * MINUTE),
    )
    said = [{"type": name, **entry} for name, entry in conditions.items()]
    node = msgspec.convert({"status": {"conditions": said}}, Node, strict=False)
    found = facts_of(node=node, policy=DisruptionPolicy(repair=rules)).sickness
    assert (None if found is None else (found.rule.index, found.due)) == (
        None if due is None else (index, NOW + minutes(due))
    )
    assert facts_of(node=node).sickness is None
    assert facts_of(node=node, policy=None).sickness is None
    assert facts_of(node=None, policy=DisruptionPolicy(repair=rules)).sickness is None


@pytest.mark.parametrize(
    ("facts", "counted"),
    [
        ({}, True),
        ({"claim": None}, False),
        ({"initialized": False}, False),
        ({"initialized": False, "rebooting": True}, True),
        ({"instance_terminating": True}, False),
    ],
)
def test_who_is_counted(facts: dict[str, Any], counted: bool) -> None:
    """Budgets count managed nodes that are initialized or rebooting and whose instance is not terminating."""
    assert facts_of(**facts).counted is counted


@pytest.mark.parametrize(
    ("facts", "used"), [({}, False), ({"marked": "x"}, True), ({"rebooting": True}, True), ({"ready": False}, True)]
)
def test_who_takes_a_place(facts: dict[str, Any], used: bool) -> None:
    """Leaving, rebooting and unready nodes use a place of the budget."""
    assert facts_of(**facts).used is used


def test_small_facts() -> None:
    """The facts include drift, creation time, expiry, closing and Jobs."""
    assert [facts_of(drifted_since=when).drifted for when in (None, NOW)] == [False, True]
    assert (facts_of(claim=BORN).created, facts_of(claim=None).created) == (NOW - minutes(15), None)
    assert facts_of(claim=BORN, expire_after=HOUR).expires_at == NOW + minutes(45)
    assert facts_of(claim=BORN).expires_at is None
    assert facts_of(claim=None, expire_after=HOUR).expires_at is None
    other, closing = Taint(key="x", effect="y"), Taint(key=names.CLOSING_TAINT, effect="y")
    for taints, shut in (((), False), ((other,), False), ((other, closing), True)):
        node = Node()
        node = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints))
        assert facts_of(node=node).closing is shut
    assert not facts_of(node=None).closing
    other_pod = Pod(metadata=ObjectMeta(owner_references=(OwnerReference(kind="Set"),)))
    job = Pod(metadata=ObjectMeta(owner_references=(OwnerReference(kind="Set"), OwnerReference(kind="Job"))))
    assert [facts_of(reschedulable=pods).has_jobs for pods in ((), (POD,), (other_pod,), (POD, job))] == [False] * 3 + [
        True
    ]
    assert facts_of(pool=None).pause is None


# ---------------------------------------------------------------- costs


def _costs(**facts: Any) -> NodeFacts:
    """Return a node that has three quarters of its life left, with pods that cost four units."""
    parts = {"claim": BORN, "expire_after": HOUR, "pod_costs": 4 * UNIT, "price_float": 6.0, **facts}
    return facts_of(**{"policy": DisruptionPolicy(savings_threshold=5, disruption_price=7), **parts})


def test_costs_of_a_node() -> None:
    """A node's cost is the sum of its pods' costs times its remaining life."""
    node = _costs(positive_costs=2 * UNIT, tracked_costs=7 * UNIT)
    assert node.remaining(NOW) == Fraction(3, 4)
    assert node.disruption_cost(NOW) == 3
    assert node.disruption_cost_float(NOW) == 3.0
    assert Fraction(*node.required_savings(NOW)) == 15
    assert Fraction(*(node.asked_waste(NOW) or (0, 1))) == 21
    assert (node.rescheduling_cost, node.rescheduling_cost_float, node.tracked_cost) == (3, 3.0, 8)
    assert node.savings_ratio == 2.0
    amount, span = node.falls_by
    assert Fraction(amount * 15 * MINUTE, span) == 5  # 20 in an hour


@pytest.mark.parametrize("policy", [None, DisruptionPolicy(static=True, disruption_price=7)])
def test_what_nothing_is_asked_of(policy: DisruptionPolicy | None) -> None:
    """Nodes without a policy and nodes of static pools require no savings."""
    node = _costs(policy=policy)
    assert node.required_savings(NOW) == (0, 1)
    assert node.asked_waste(NOW) is None
    assert policy is not None or node.falls_by == (0, 1)


def test_what_never_falls() -> None:
    """The cost of a node that never expires does not fall; without a price no waste is required."""
    assert _costs(expire_after=None).falls_by == (0, 1)
    assert _costs(policy=DisruptionPolicy()).asked_waste(NOW) is None


def test_karpenters_own_figure() -> None:
    """Karpenter's cost counts all pods and the claim's own expireAfter."""
    claim = msgspec.structs.replace(BORN, spec=msgspec.structs.replace(BORN.spec, expire_after="1h"))
    assert _costs(claim=claim, expire_after=None, all_costs=8 * UNIT).karpenter_disruption_cost(NOW) == 6.0
    assert _costs(claim=None, all_costs=8 * UNIT).karpenter_disruption_cost(NOW) == 8.0


@pytest.mark.parametrize(
    ("pods", "positive", "empty", "for_karpenter"), [(0, 0, True, True), (1, 0, False, True), (0, 1, True, False)]
)
def test_empty(pods: int, positive: int, empty: bool, for_karpenter: bool) -> None:
    """Dovetail's empty node has no pods that move; Karpenter's has no pods with a positive cost."""
    node = facts_of(pods=pods, positive_costs=positive)
    assert (node.empty, node.empty_for_karpenter) == (empty, for_karpenter)


# ---------------------------------------------------------------- what pods come to


def _pod(name: str = "p", **annotations: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="d", annotations=annotations))


@pytest.mark.parametrize("cost", [-(1 << 28), -(1 << 27), 1 - (1 << 27), 0])
@pytest.mark.parametrize("flags", [0, RESCHEDULABLE, DAEMON, TERMINAL])
def test_sums(cost: int, flags: int) -> None:
    """The sums are: all pods; active pods with a positive cost except daemons; pods that move."""
    pod = _pod(**{names.DISRUPTION_COST: str(cost)})
    amount, positive = UNIT + cost, max(UNIT + cost, 0)
    sums = PodSums()
    sums.add(pod, flags)
    moves = flags == RESCHEDULABLE
    assert sums.all == amount
    assert sums.tracked == (positive if flags in (0, RESCHEDULABLE) else 0)
    assert (sums.moving, sums.positive) == ((amount, positive) if moves else (0, 0))
    assert sums.reschedulable == ([pod] if moves else [])


def test_ranks_are_no_costs() -> None:
    """Deletion costs are ignored if Karpenter writes ranks."""
    pod = _pod(**{names.POD_DELETION_COST: "5"})
    for ranked, extra in ((True, 0), (False, 5)):
        sums = PodSums((), cost_reading(DOVETAIL_RULES, ranked=ranked))
        sums.add(pod, RESCHEDULABLE)
        assert sums.moving == UNIT + extra


def test_windows_are_noted() -> None:
    """Windows of pods that move are recorded; an unreadable one never opens and causes a warning."""
    sums = PodSums()
    for text, flags in (("odd", RESCHEDULABLE), ("0 16 * * *; 1h", RESCHEDULABLE), ("odd", 0)):
        sums.add(_pod(**{names.DISRUPTION_WINDOW: text}), flags)
    assert [entry.text for _, entry in sums.windows] == ["odd", "0 16 * * *; 1h"]
    (told,) = sums.unreadable
    assert told.startswith(f"pod d/p: {names.DISRUPTION_WINDOW}: it has no semicolon")


def test_the_first_protection_counts() -> None:
    """The first protected pod counts, and each unreadable value causes a warning."""
    sums, guards = PodSums(), Guards(())
    for name, value in (("a", "perhaps"), ("b", "true"), ("c", "true")):
        sums.ask(_pod(name, **{names.DO_NOT_DISRUPT: value}), guards, NO_SURGES, NOW)
    sums.ask(_pod("d", **{names.DISRUPTION_COST: "much"}), guards, NO_SURGES, NOW)
    sums.ask(_pod("e"), guards, NO_SURGES, NOW)
    assert sums.protection is not None
    assert sums.protection.pod.metadata.name == "b"
    assert [text.split(":")[0] for text in sums.unreadable] == ["pod d/a", "pod d/d"]
    later = PodSums()
    later.ask(_pod("d", other="x"), guards, NO_SURGES, NOW)
    assert later.protection is None


class _OneSurge(Surges):
    """Assign all pods with the label to one Deployment."""

    def __init__(self, surge: Surge) -> None:
        super().__init__({("d", "x"): surge})
        self.surge = surge

    def of(self, pod: Pod) -> Surge | None:
        return self.surge if "surges" in pod.metadata.labels else None


def _surge(replicas: int, *pods: Pod) -> Surge:
    tree = {"metadata": {"name": "web", "namespace": "d"}, "spec": {"replicas": replicas}}
    return Surge(deployment=msgspec.convert(tree, Deployment, strict=False), pods=pods)


@pytest.mark.parametrize(
    ("labels", "replicas", "allowed", "rolls"),
    [
        ({}, 2, None, False),
        ({"app": "web"}, 2, 0, False),
        ({"app": "web"}, 2, 1, False),
        ({"app": "web", "surges": "x"}, 2, 0, True),
        ({"app": "web", "surges": "x"}, 2, 1, False),
        ({"surges": "x"}, 2, None, False),
        ({"surges": "x"}, 1, None, True),
    ],
)
def test_who_rolls(labels: dict[str, str], replicas: int, allowed: int | None, rolls: bool) -> None:
    """A Deployment that surges rolls if a PDB blocks its pod or if it has one pod."""
    town = Town(kind("m", "1"))
    town.pdb("guard", {"app": "web"}, allowed or 0)
    pdbs = town.cluster.pdbs if allowed is not None else ()
    pods = [Pod(metadata=ObjectMeta(name=name, namespace="default", labels=labels)) for name in ("a", "b")]
    sums = PodSums()
    for pod in pods:
        sums.ask(pod, Guards(pdbs), _OneSurge(_surge(replicas)), NOW)
    assert list(sums.surges) == (["d/web"] if rolls else [])
    if rolls:
        assert sums.surges["d/web"][0] is pods[0]


def test_all_pods_of_a_surge_cost() -> None:
    """All pods of a Deployment that rolls count once with their cost, on other nodes too."""
    costs = {"here": 0, "there": 5, "cheap": -(1 << 28), "free": -(1 << 27)}
    pods = []
    for name, extra in costs.items():
        pod = _pod(name, **{names.DISRUPTION_COST: str(extra)})
        spec = msgspec.structs.replace(pod.spec, node_name="n" if name == "here" else "m")
        pods.append(msgspec.structs.replace(pod, spec=spec))
    sums = PodSums()
    sums.surges["d/web"] = (pods[0], _surge(2, *pods))
    sums.count_surges("n")
    assert sums.moving == (UNIT + 5) + (UNIT - (1 << 28)) + 0
    assert sums.positive == UNIT + 5


# ---------------------------------------------------------------- reading


def _read(change: Callable[[Town], None] = lambda town: None, **question: Any) -> dict[str, NodeFacts]:
    """Return the facts of a cluster with one node `n` of a type in three zones, and a pod on it."""
    town = Town(kind("m", "1", spot="0.5"))
    town.pool()
    town.node("n", "m", zone="b")
    town.pod("p", "n")
    change(town)
    return dict(Scene.of(town.question(**question)).by_name)


def test_the_price_is_that_of_its_zone_and_capacity() -> None:
    """The price is that of the node's offering, or unknown without one."""

    def dearer(town: Town) -> None:
        made = town.kinds["m"]
        amounts = {(names.ON_DEMAND, "b"): 7, (names.SPOT, "b"): 3, (names.ON_DEMAND, "a"): 2}
        offers = [
            replace(
                o,
                price=amounts.get((o.capacity_type, o.zone), 9),
                price_float=amounts.get((o.capacity_type, o.zone), 9.0),
            )
            for o in made.offerings
        ]
        twice = replace(offers[1], price=8, price_float=1.0)
        town.kinds["m"] = replace(made, offerings=(*offers, twice))

    node = _read(dearer)["n"]
    assert (node.price, node.price_float, node.offering_price, node.type_known) == (7, 7, 1.0, True)
    node = _read(lambda town: town.node("n", "m", zone="elsewhere"))["n"]
    assert (node.price, node.price_float, node.offering_price) == (0, 0.0, None)
    node = _read(lambda town: town.node("n", "m", labels={names.INSTANCE_TYPE: "odd"}))["n"]
    assert (node.type_known, node.price) == (False, 0)


def _mark(town: Town, *taints: tuple[str, int], node: int | None = None, claim: int | None = None) -> None:
    """Taint the node and delete its objects this many minutes ago."""
    made = town.nodes["n"]
    keys = tuple(Taint(key=key, effect="NoSchedule", time_added=NOW - minutes(ago)) for key, ago in taints)
    made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, taints=keys))
    for item, ago in ((made, node), (town.claims["n"], claim)):
        if ago is not None:
            item = msgspec.structs.replace(
                item, metadata=msgspec.structs.replace(item.metadata, deletion_timestamp=NOW - minutes(ago))
            )
        if isinstance(item, Node):
            town.nodes["n"] = item
        else:
            town.claims["n"] = item


@pytest.mark.parametrize(
    ("taints", "node", "claim", "since"),
    [
        ([], None, None, None),
        ([(names.DISRUPTION_TAINT, 5), ("other", 9)], None, None, 5),
        ([(names.DISRUPTED_TAINT, 5)], None, None, 5),
        ([(names.DISRUPTED_TAINT, 5)], None, 7, 7),
        ([(names.DISRUPTED_TAINT, 5)], None, 3, 5),
        ([], 4, 6, 6),
        ([], 6, 4, 6),
    ],
)
def test_since_when_a_node_leaves(
    taints: list[tuple[str, int]], node: int | None, claim: int | None, since: int | None
) -> None:
    """A node leaves from the earliest of its taint and the deletions of its objects."""
    facts = _read(lambda town: _mark(town, *taints, node=node, claim=claim))["n"]
    assert bool(facts.marked) is (since is not None)
    assert facts.marked_since == (None if since is None else NOW - minutes(since))


def test_a_command_in_flight_marks() -> None:
    """A command in flight marks its node with its method and time, whatever the objects show."""
    entry = LeavingNode(node="n", method=Method.DRIFTED, since=NOW - minutes(2))
    facts = _read(lambda town: _mark(town, (names.DISRUPTED_TAINT, 5)), in_flight=InFlight(leaving=(entry,)))["n"]
    assert (facts.marked, facts.marked_since) == ("a command in flight takes it (drifted)", NOW - minutes(2))


def test_a_claim_in_deletion_without_a_node() -> None:
    """A deleted claim without a node is marked from its own deletion time."""

    def change(town: Town) -> None:
        _mark(town, claim=3)
        del town.nodes["n"]

    facts = _read(change)["claim-n"]
    assert facts.marked_since == NOW - minutes(3)
    assert (facts.node, facts.ready) == (None, False)


@pytest.mark.parametrize(
    ("conditions", "facts"),
    [
        ([], (False, False, None)),
        ([("InstanceTerminating", "True")], (True, False, None)),
        ([(names.CONDITION_REBOOTING, "True")], (False, True, None)),
        ([("Drifted", "False")], (False, False, None)),
        ([("Drifted", "True")], (False, False, NOW)),
    ],
)
def test_conditions_of_a_claim(conditions: list[tuple[str, str]], facts: Any) -> None:
    """The conditions give terminating, rebooting and drifted; drift without a time starts now."""
    said = [{"type": name, "status": status} for name, status in conditions]
    node = _read(lambda town: town.node("n", "m", conditions=said))["n"]
    assert (node.instance_terminating, node.rebooting, node.drifted_since) == facts
    ago = _read(lambda town: town.node("n", "m", drifted=timedelta(hours=1)))["n"]
    assert ago.drifted_since == NOW - minutes(60)


def test_who_is_nominated() -> None:
    """Settings, commands in flight and the scheduler nominate nodes, by node name or claim name."""
    assert not _read()["n"].nominated
    for name in ("n", "claim-n"):
        assert _read(settings=replace(DOVETAIL, nominated_nodes=(name,)))["n"].nominated
        assert _read(in_flight=InFlight(nominated=(name,)))["n"].nominated
    assert not _read(in_flight=InFlight(nominated=("other",)))["n"].nominated

    def wait(town: Town) -> None:
        town.pod("w")
        pod = town.pods["w"]
        town.pods["w"] = msgspec.structs.replace(
            pod, status=msgspec.structs.replace(pod.status, nominated_node_name="n")
        )

    assert _read(wait)["n"].nominated
    assert not _read(wait, settings=KARPENTER_1_15)["n"].nominated


def test_pod_events_that_were_seen() -> None:
    """The later of the recorded and the observed pod event counts."""
    assert _read()["n"].last_event == NOW - minutes(60)
    assert _read(pod_events={"n": NOW - minutes(2)})["n"].last_event == NOW - minutes(2)


@pytest.mark.parametrize(
    ("pool", "life", "ours", "karpenters"),
    [(None, "Never", None, None), (None, "2h", 2 * HOUR, 2 * HOUR), ("3h", "2h", 3 * HOUR, 2 * HOUR)],
)
def test_which_expiry_counts(pool: str | None, life: str, ours: int | None, karpenters: int | None) -> None:
    """The pool's graceful expiry wins over the claim's own; Karpenter's profile reads the claim's only."""

    def change(town: Town) -> None:
        town.pool(disruption={} if pool is None else {"expireAfter": pool})
        town.node("n", "m", zone="b", life=life)

    assert _read(change)["n"].expire_after == ours
    assert _read(change, settings=KARPENTER_1_15)["n"].expire_after == karpenters


def test_nodes_without_objects() -> None:
    """A node without a claim or a pool has no facts of those."""

    def change(town: Town) -> None:
        del town.claims["n"]
        town.pools.clear()

    node = _read(change)["n"]
    assert (node.claim, node.pool, node.policy, node.expire_after, node.last_event) == (None,) * 5
    assert (node.instance_terminating, node.drifted_since, node.ready) == (False, None, True)
    assert not _read(lambda town: town.node("n", "m", ready=False))["n"].ready


def test_nodes_that_the_scheduler_does_not_see() -> None:
    """Nodes without labels yet appear once by name and have no pods that count."""

    def change(town: Town) -> None:
        town.node("late", "m", without=[names.INSTANCE_TYPE, names.INITIALIZED_LABEL])
        town.pod("q", "late")
        town.node("same", "m", without=[names.INSTANCE_TYPE, names.INITIALIZED_LABEL])
        claim = town.claims["same"]
        named = msgspec.structs.replace(claim.metadata, name="same")
        town.claims["same"] = msgspec.structs.replace(claim, metadata=named)
        town.node("raw", "m", without=[names.REGISTERED_LABEL])

    found = _read(change)
    assert list(found) == ["claim-late", "claim-raw", "late", "n", "same"]
    assert found["late"].claim is None
    assert (found["late"].reschedulable, found["late"].all_costs) == ((), 0)
    assert found["same"].claim is not None


def test_what_pods_ask_reaches_the_node() -> None:
    """Active pods pass protection, PDBs, windows and unreadable values to their node; ended pods do not."""

    def change(town: Town) -> None:
        town.pdb("guard", {"app": "web"}, allowed=0)
        for name, annotations, labels in (
            ("a", {names.DO_NOT_DISRUPT: "true"}, {}),
            ("b", {}, {"app": "web"}),
            ("c", {names.DISRUPTION_COST: "much"}, {}),
        ):
            town.pod(name, "n", annotations=annotations, labels=labels)

    node = _read(change)["n"]
    assert node.protection is not None
    assert node.protection.pod.metadata.name == "a"
    assert [pod.metadata.name for pod in node.pods] == ["a", "b", "c", "p"]
    assert len(node.unreadable) == 1
    assert len(node.reschedulable) == 4

    def ended(town: Town) -> None:
        change(town)
        for name, pod in town.pods.items():
            phase = {"phase": "Succeeded"} if name == "a" else {}
            gone = {} if name == "a" else {"deletion_timestamp": NOW}
            status = msgspec.structs.replace(pod.status, **phase)
            town.pods[name] = msgspec.structs.replace(
                pod, status=status, metadata=msgspec.structs.replace(pod.metadata, **gone)
            )

    node = _read(ended)["n"]
    assert (node.protection, node.unreadable, node.reschedulable) == (None, (), ())
    assert node.all_costs == 4 * UNIT


def test_the_first_pod_with_resource_claims() -> None:
    """The node names its first moving pod with resource claims."""

    def claiming(town: Town, **parts: Any) -> None:
        spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]}
        town.pod("q", "n", spec=spec, **parts)
        town.pod("r", "n", spec=spec, **parts)

    pod = _read(claiming)["n"].claiming
    assert pod is not None
    assert pod.metadata.name == "q"
    assert _read()["n"].claiming is None
    daemon = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "x"}]
    assert _read(lambda town: claiming(town, ownerReferences=daemon))["n"].claiming is None


def test_a_single_pod_that_surges_is_found() -> None:
    """A Deployment with one pod that asks for a surge rolls, even without a PDB or a protected pod."""

    def surging(town: Town) -> None:
        owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u"}]
        town.node("other", "m")
        for name, node in (("q", "n"), ("r", "other")):
            town.pod(name, node, ownerReferences=owners)
        deployment = {
            "metadata": {"name": "web", "namespace": "default", "uid": "d", "annotations": {names.SURGE: "true"}},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            },
        }
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
        rs = {"metadata": {"name": "web-1", "namespace": "default", "uid": "u", "ownerReferences": [owner]}}
        town.others.append(msgspec.convert(deployment, Deployment, strict=False))
        town.others.append(msgspec.convert(rs, ReplicaSet, strict=False))

    node = _read(surging)["n"]
    assert [surge.name for _, surge in node.surges] == ["default/web"]
    assert node.pod_costs == 3 * UNIT


def test_only_what_changed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decider with memory reads a node once, and again only after that node changes."""
    asked: list[str] = []
    read, facts, sums = reading.Reader._read, reading.Reader._facts, reading.sum_up

    def note(what: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            asked.append(what)
            return real(*args)

        return noted

    monkeypatch.setattr(reading.Reader, "_read", note("read", read))
    monkeypatch.setattr(reading.Reader, "_facts", note("facts", facts))
    monkeypatch.setattr(reading, "sum_up", note("sums", sums))
    town = Town(kind("m", "1"))
    town.pool()
    for name in "abc":
        town.node(name, "m")
        town.pod(f"on-{name}", name)
    decider, catalogue = Decider(), town.catalogue
    question = town.question(catalogue=catalogue)
    first = decider.scene(question).nodes
    assert sorted(asked) == ["facts"] * 3 + ["read"] * 3 + ["sums"] * 3
    asked.clear()
    assert decider.scene(question).nodes == first
    assert asked == []
    town.event("b")
    again = decider.scene(town.question(catalogue=catalogue)).nodes
    assert asked == ["facts", "read"]
    assert [one is other for one, other in zip(first, again, strict=True)] == [True, False, True]
    asked.clear()
    assert decider.scene(town.question(catalogue=catalogue, settings=replace(DOVETAIL, paused=True))).nodes != again
    assert sorted(asked) == ["facts"] * 3 + ["read"] * 3
    asked.clear()
    nominated = decider.scene(
        town.question(catalogue=catalogue, settings=replace(DOVETAIL, paused=True), pod_events={"a": NOW})
    ).nodes
    assert asked == ["facts"]
    assert nominated[0].last_event == NOW


def test_facts_of_other_pods_keep_the_rest() -> None:
    """After pods came and went, the facts equal those of a decider that reads everything again."""
    town = Town(kind("m", "1"))
    town.pool()
    for name in "ab":
        town.node(name, "m")
        town.pod(f"on-{name}", name)
    decider, catalogue = Decider(), town.catalogue
    assert [len(facts.reschedulable) for facts in decider.scene(town.question(catalogue=catalogue)).nodes] == [1, 1]
    town.pod("more", "b", cpu="200m")
    town.event("b")
    question = town.question(catalogue=catalogue)
    for one, other in zip(decider.scene(question).nodes, Decider(memory=False).scene(question).nodes, strict=True):
        assert msgspec.structs.asdict(one) == msgspec.structs.asdict(other)


@pytest.mark.parametrize(
    ("flags", "counted"),
    [
        (0, (True, True, False)),
        (RESCHEDULABLE, (True, True, True)),
        (DAEMON, (True, False, False)),
        (TERMINAL, (True, False, False)),
    ],
    ids=["a mirror pod", "one that moves", "a daemon", "one that ended"],
)
def test_which_pods_count_into_which_sum(flags: int, counted: tuple[bool, bool, bool]) -> None:
    """The sums are all pods, the pods in Karpenter's state (no daemons), and the pods that move."""
    sums = PodSums()
    sums.add(Pod(metadata=ObjectMeta(name="p", namespace="d")), flags)
    assert (sums.all > 0, sums.tracked > 0, sums.moving > 0) == counted
