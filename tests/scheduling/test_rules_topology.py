"""Spread, affinity and anti-affinity between pods, in both directions, on existing and new nodes."""

from dataclasses import replace

import msgspec

from dovetail.model.objects import Namespace
from dovetail.model.settings import DOVETAIL, PreferencePolicy
from dovetail.scheduling.simulate import place, simulate
from tests.support.scheduling_build import (
    homes,
    kind,
    near,
    node,
    node_affinity,
    placed,
    pod,
    pool,
    snapshot,
    spread,
    unplaced,
    wants,
    without,
)

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
SHUT = pool(limits={"cpu": "0"})


def test_zone_spread_goes_to_the_least_zone() -> None:
    """With one pod in zone a and none in b, the next must go to b; the third zone that types offer counts too."""
    nodes = [*node("n1", zone="a"), *node("n2", zone="b")]
    running, next_pod = pod("a-1", on="n1"), pod("a-2", topologySpreadConstraints=[spread()])
    assert placed(SHUT, nodes, running, next_pod) == {"a-2": "n2"}
    three = (kind("c.4", 4, zones="abc"),)
    both = [running, pod("a-3", on="n2"), next_pod]
    found = place(snapshot(pool(), nodes, *both, kinds=three))
    assert found.new[0].zones == ("c",)


def test_max_skew_and_pods_that_do_not_count_themselves() -> None:
    """A larger maxSkew leaves more; a pod that its own selector misses doesn't add to the count."""
    nodes = [*node("n1", zone="a"), *node("n2", zone="b")]
    running = [pod("a-1", on="n1"), pod("a-2", on="n1")]
    for skew, app, home in ((1, "a", "n2"), (3, "a", "n1"), (2, "b", "n1")):
        waiting = pod(f"{app}-9", topologySpreadConstraints=[spread(maxSkew=skew)])
        assert placed(SHUT, nodes, running[0], running[1], waiting) == {f"{app}-9": home}, (skew, app)


def test_min_domains() -> None:
    """With fewer domains than minDomains the minimum count is 0."""
    one = [*node("n1", zone="a")]
    running, waiting = pod("a-1", on="n1"), pod("a-2", topologySpreadConstraints=[spread(minDomains=2)])
    kinds = (kind("c.4", 4, zones="a"),)
    assert placed(pool(), one, running, waiting, kinds=kinds) == {}
    relaxed = pod("a-2", topologySpreadConstraints=[spread(minDomains=1)])
    assert placed(pool(), one, running, relaxed, kinds=kinds) == {"a-2": "n1"}


def test_a_zone_counts_until_the_last_of_its_nodes_is_removed() -> None:
    """Spread ignores a zone that no node and no launch would be in."""
    nodes = [*node("n1", zone="a"), *node("n2", zone="b"), *node("n3", zone="b")]
    pods = [pod(f"a-{i}", on=f"n{i}", topologySpreadConstraints=[spread()]) for i in (1, 2)]
    seen = snapshot(SHUT, nodes, *pods, kinds=(kind("c.4", 4, zones="a"),))
    assert homes(simulate(seen, [1])) == {"a-2": "n3"}
    assert homes(simulate(seen, [1, 2])) == {"a-2": "n1"}


def test_hosts_fill_up_to_the_skew_whatever_the_others_have() -> None:
    """For host names the minimum is always 0, because a new node is possible."""
    waiting = pod("a-2", topologySpreadConstraints=[spread(HOST)])
    assert placed(SHUT, node("n1"), node("n2"), pod("a-1", on="n1"), waiting) == {"a-2": "n2"}
    assert placed(SHUT, node("n1"), pod("a-1", on="n1"), waiting) == {}
    assert placed(pool(), node("n1"), pod("a-1", on="n1"), waiting) == {"a-2": "new p #1"}


def test_nodes_that_the_pod_could_not_use_do_not_count() -> None:
    """NodeAffinityPolicy Honor leaves nodes out that the pod's selector misses; Ignore counts them."""
    nodes = [*node("n1", zone="a", labels={"disk": "hdd"}), *node("n2", zone="a", labels={"disk": "ssd"})]
    nodes += node("n3", zone="b", labels={"disk": "ssd"})
    running = [pod("a-1", on="n1"), pod("a-2", on="n1")]
    for policy, home in (("Honor", "n2"), ("Ignore", "n3")):
        constraint = spread(nodeAffinityPolicy=policy)
        waiting = pod("a-9", nodeSelector={"disk": "ssd"}, topologySpreadConstraints=[constraint])
        assert placed(SHUT, nodes, *running, waiting) == {"a-9": home}, policy


def test_tainted_nodes_count_unless_taints_are_honoured() -> None:
    """NodeTaintsPolicy Honor leaves out domains behind taints that the pod doesn't tolerate."""
    nodes = [*node("n1", zone="a"), *node("n2", zone="b", taints=[{"key": "x", "effect": "NoSchedule"}])]
    kinds = (kind("c.4", 4, zones="a"),)
    for policy, home in (("Honor", {"a-9": "n1"}), ("Ignore", {})):
        waiting = pod("a-9", topologySpreadConstraints=[spread(nodeTaintsPolicy=policy)])
        assert placed(SHUT, nodes, pod("a-1", on="n1"), waiting, kinds=kinds) == home, policy


def test_match_label_keys() -> None:
    """MatchLabelKeys count only pods with the same value, such as those of one revision."""
    nodes = [*node("n1", zone="a"), *node("n2", zone="b")]
    old = pod("a-1", on="n1", labels={"app": "a", "rev": "1"})
    waiting = pod("a-2", labels={"app": "a", "rev": "2"}, topologySpreadConstraints=[spread(matchLabelKeys=["rev"])])
    assert placed(SHUT, nodes, old, waiting) == {"a-2": "n1"}


def test_anti_affinity_over_hosts_and_zones() -> None:
    """A pod keeps away from the host, or the zone, of the pods it names."""
    nodes = [*node("n1", zone="a"), *node("n2", zone="a"), *node("n3", zone="b")]
    running = pod("a-1", on="n1")
    assert placed(SHUT, nodes, running, pod("b", affinity=near("podAntiAffinity"))) == {"b": "n2"}
    assert placed(SHUT, nodes, running, pod("b", affinity=near("podAntiAffinity", ZONE))) == {"b": "n3"}


def test_anti_affinity_works_both_ways() -> None:
    """A running pod's anti-affinity also keeps away pods without a rule."""
    holder = pod("h", on="n1", affinity=near("podAntiAffinity", ZONE, app="b"))
    nodes = [*node("n1", zone="a"), *node("n2", zone="a"), *node("n3", zone="b")]
    assert placed(SHUT, nodes, holder, pod("b")) == {"b": "n3"}
    assert placed(SHUT, nodes, holder, pod("c")) == {"c": "n1"}


def test_anti_affinity_among_pods_that_are_placed() -> None:
    """Pods of one batch respect each other: each gets its own host, old or new."""
    alone = near("podAntiAffinity")
    batch = [pod(f"a-{i}", affinity=alone) for i in range(3)]
    assert sorted(placed(pool(), node("n1"), *batch).values()) == ["n1", "new p #1", "new p #2"]


def test_affinity_goes_where_the_others_are() -> None:
    """A pod goes to the host or zone of the pods it wants to be near."""
    nodes = [*node("n1", zone="a"), *node("n2", zone="b"), *node("n3", zone="b")]
    running = pod("a-1", on="n3")
    assert placed(SHUT, nodes, running, pod("b", affinity=near("podAffinity"))) == {"b": "n3"}
    assert placed(SHUT, nodes, running, pod("b", affinity=near("podAffinity", ZONE))) == {"b": "n2"}
    assert placed(SHUT, nodes, pod("b", affinity=near("podAffinity"))) == {}


def test_the_first_of_its_kind_starts_anywhere() -> None:
    """The first pod with affinity to its own kind may go anywhere; the next ones join it."""
    together = [pod(f"a-{i}", affinity=near("podAffinity", ZONE)) for i in range(2)]
    found = placed(SHUT, node("n1", 1, zone="a"), node("n2", zone="b"), pod("r", "0.5", on="n1"), *together)
    assert set(found.values()) == {"n2"}


def test_namespaces_of_terms() -> None:
    """A term looks at its pod's namespace, at those it lists, or at those its selector selects."""
    other = pod("a-1", on="n1", namespace="prod")
    teams = [msgspec.convert({"metadata": {"name": n, "labels": {"team": n}}}, Namespace) for n in ("default", "prod")]
    nodes = [*node("n1"), *node("n2")]
    for more, home in (
        ({}, "n1"),
        ({"namespaces": ["prod"]}, "n2"),
        ({"namespaceSelector": {"matchLabels": {"team": "prod"}}}, "n2"),
        ({"namespaceSelector": {"matchLabels": {"team": "none"}}}, "n1"),
    ):
        waiting = pod("b", affinity=near("podAntiAffinity", **more))
        assert placed(SHUT, nodes, *teams, other, waiting) == {"b": home}, more


def test_pods_that_move_are_not_counted_where_they_were() -> None:
    """A moved pod does not count in its old zone and may stay in that zone."""
    nodes = [*node("n1", zone="a"), *node("n2", zone="a"), *node("n3", zone="b")]
    moved = pod("a-1", on="n1", topologySpreadConstraints=[spread()])
    assert homes(without(snapshot(SHUT, nodes, moved, pod("a-2", on="n3")), "n1")) == {"a-1": "n2"}


def test_preferences_are_musts_until_nothing_else_is_left() -> None:
    """A preferred anti-affinity opens a new node rather than use room; with policy Ignore it doesn't."""
    soft = {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "a"}}}}
            ]
        }
    }
    objects = (node("n1"), pod("a-1", on="n1"), pod("b", affinity=soft))
    assert placed(pool(), *objects) == {"b": "new p #1"}
    assert place(snapshot(pool(), *objects)).new[0].kept_preferences() == (
        "default/b holds on to a preferred pod anti-affinity",
    )
    assert placed(SHUT, *objects) == {"b": "n1"}
    ignore = replace(DOVETAIL, preference_policy=PreferencePolicy.IGNORE)
    assert placed(pool(), *objects, settings=ignore) == {"b": "n1"}


def test_order_of_relaxing() -> None:
    """Preferred node affinity goes before a ScheduleAnyway spread, the heaviest first."""
    preferred = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [wants("disk", "In", "ssd")]}},
                {"weight": 9, "preference": {"matchExpressions": [wants("disk", "In", "none")]}},
            ]
        }
    }
    nodes = [*node("n1", zone="a"), *node("n2", zone="a", labels={"disk": "ssd"}), *node("n3", zone="b")]
    assert placed(SHUT, nodes, pod("b", affinity=preferred)) == {"b": "n2"}
    loose = spread(whenUnsatisfiable="ScheduleAnyway")
    both = pod("a-9", affinity=preferred, topologySpreadConstraints=[loose])
    assert placed(SHUT, nodes, pod("a-1", on="n1"), both) == {"a-9": "n3"}


def test_two_rules_on_a_new_node() -> None:
    """A new node is narrowed to one zone by the spread, and only to zones that the pod's own terms allow."""
    waiting = pod(
        "a-9", affinity=node_affinity([wants(ZONE, "In", "b")]), topologySpreadConstraints=[spread(maxSkew=5)]
    )
    found = place(snapshot(pool(), waiting))
    assert found.new[0].zones == ("b",)


def test_why_names_the_zone_that_is_full() -> None:
    """The reason names the zones, the rule and the counts."""
    nodes = [*node("n1", zone="a"), *node("n2", 0.5, zone="b")]
    waiting = pod("a-9", topologySpreadConstraints=[spread()])
    why = unplaced(place(snapshot(SHUT, nodes, pod("a-1", on="n1"), waiting)))["a-9"]
    assert "zone a is full by its spread of 1 (1 there, the least is 0)" in why


def test_ties_between_domains_go_by_name_or_by_the_chance_that_is_asked_for() -> None:
    """Equal zones are taken by name, or in a random order that depends only on the seed."""
    kinds = (kind("c.4", 4, zones="abc"),)

    def zone(ties: int) -> tuple[str, ...]:
        waiting = pod("a-1", topologySpreadConstraints=[spread()])
        found = place(snapshot(pool(), waiting, kinds=kinds, settings=replace(DOVETAIL, ties=ties)))
        return tuple(found.new[0].zones)

    assert zone(0) == ("a",)
    taken = [zone(ties) for ties in range(1, 20)]
    assert set(taken) == {("a",), ("b",), ("c",)}
    assert taken == [zone(ties) for ties in range(1, 20)]


def test_chance_is_thrown_anew_for_every_pod() -> None:
    """Two groups of pods over equal zones do not always take the same zone, as in Karpenter."""
    kinds = (kind("c.2", 2, zones="abc"),)

    def zones(ties: int) -> list[str]:
        one = pod("a-1", cpu="1500m", topologySpreadConstraints=[spread()])
        other = pod("b-1", cpu="1500m", topologySpreadConstraints=[spread(app="b")])
        found = place(snapshot(pool(), one, other, kinds=kinds, settings=replace(DOVETAIL, ties=ties)))
        return [new.zones[0] for new in found.new]

    taken = [zones(ties) for ties in range(1, 20)]
    assert {len(set(pair)) for pair in taken} == {1, 2}
