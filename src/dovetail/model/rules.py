"""The rules in which profiles differ, one named field each: a profile is a set of values, nothing more.

A settings file can't set them: a file changes tunables (`model.settings`), a profile chooses rules. `docs/profiles.md`
lists them all, generated from here. The defaults are Dovetail's; `karpenter_rules` repeats a version of Karpenter,
flaws included: each rule says in which versions Karpenter has the other value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

OLDEST, NEWEST = 9, 15
"""The minor versions of Karpenter v1 that have a profile."""


def _rule(default: bool, about: str, *, since: int = OLDEST, until: int = NEWEST) -> bool:
    """Declare a rule: Dovetail's value, and what it means if it is true.

    Karpenter v1.`since` to v1.`until` have the other value.
    """
    value: bool = field(default=default, metadata={"about": about, "since": since, "until": until})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All rules in which profiles differ. The text beside each says what it means if it is true."""

    # ------------------------------------------------------------ pools and policies
    manages_all_pools: bool = _rule(
        False, "Every NodePool is managed, whatever its labels and the setting `pools` say."
    )
    extended_policy: bool = _rule(
        True,
        "A pool's policy has Dovetail's fields too: the annotation, `consolidationGracePeriod`, "
        "`consolidationSavingsThreshold`, a graceful `expireAfter`, time zones and topology keys of budgets.",
    )

    pauses: bool = _rule(True, "Pools and the whole controller can be paused.")
    health_limits: bool = _rule(True, "A pool whose `health` limits are broken waits.")

    # ------------------------------------------------------------ nodes
    disruption_taint_marks: bool = _rule(True, "A node with a disruption taint counts as leaving.")
    node_deletion_marks: bool = _rule(
        True, "A Node that is being deleted counts as leaving, even if its NodeClaim is not being deleted."
    )
    pods_nominate: bool = _rule(True, "A pending pod's `nominatedNodeName` nominates that node.")
    waiting_pods_nominate: bool = _rule(
        True,
        "An empty node stays while pending pods, or pods of leaving nodes, would land on it; "
        "else only Karpenter's own nominations keep it.",
    )
    own_annotations: bool = _rule(
        True,
        "Dovetail's annotations on a node count: its hold is no do-not-disrupt, and always-do-not-disrupt is one.",
    )
    empty_by_pod_cost: bool = _rule(
        False, "A node is empty if none of its pods has a positive disruption cost.", since=14
    )
    cost_annotation: bool = _rule(
        True, "Pods may state their cost in the annotation `karpenter.sh/disruption-cost`.", until=14
    )
    fractional_costs: bool = _rule(
        False, "A pod deletion cost may be any number; else it is a 32-bit integer or ignored.", until=14
    )
    protection_durations: bool = _rule(
        True, "A pod's do-not-disrupt may be a duration from its start; else only `true` counts.", until=11
    )
    readiness_taints_pass: bool = _rule(
        True, "Taints under `readiness.k8s.io/` are temporary on a node that is not initialized.", until=12
    )
    empty_asks_pdbs: bool = _rule(False, "A PDB over a DaemonSet pod keeps an empty node.")
    consolidatable_condition: bool = _rule(
        False,
        "`consolidateAfter` is read off the NodeClaim's condition Consolidatable, not counted from the last pod event.",
    )
    grace_period: bool = _rule(True, "`consolidationGracePeriod` holds nodes back and closes them to moved pods.")
    retires_expired: bool = _rule(
        True, "Expired nodes are retired gracefully, within the budgets; else Karpenter removes them."
    )
    roll_requests: bool = _rule(True, "Nodes that a person asked to replace (`dovetail roll`) count as drifted.")
    pod_windows: bool = _rule(True, "A pod's own window keeps its node while it is closed.")
    surges: bool = _rule(True, "A Deployment that asks for it is moved by its own rolling update where no eviction is.")
    unpriced_nodes_stay: bool = _rule(
        True, "A node whose price is unknown is not consolidated; else it counts as free."
    )
    resource_claims_stay: bool = _rule(
        True,
        "A pod with resource claims keeps its node at the gate `dynamic-resources`; else the simulation refuses it.",
    )

    # ------------------------------------------------------------ budgets
    topology_budgets: bool = _rule(
        True, "Budgets with a `topologyKey` limit drift by domain and take no part otherwise."
    )
    empty_reasons_mean_all: bool = _rule(
        True, "A budget with an empty list of reasons is for all reasons; else for none."
    )
    rate_budgets: bool = _rule(
        True, "Budgets with `per` limit how many nodes go in a time, from the history on the pool."
    )
    bad_budget_stops_pool: bool = _rule(
        False, "One budget that can't be read stops its whole pool; else it allows nothing itself."
    )

    # ------------------------------------------------------------ methods
    static_drift_first: bool = _rule(
        False,
        "Drifted nodes of static pools go first, all that fit at once; then empty nodes, then the oldest drift.",
    )
    replaces_static: bool = _rule(
        False,
        "A drifted node of a static pool gets its replacement first; else Karpenter refills the pool after it.",
    )
    all_pods_order: bool = _rule(
        False,
        "If the order is by disruption cost, that counts all pods of a node, those of DaemonSets too.",
        until=13,
    )
    balanced_policy: bool = _rule(
        True, "The policy Balanced is known; else such a pool consolidates only empty nodes.", until=13
    )
    bisects_only: bool = _rule(False, "The batch of several nodes is searched by bisection alone.")
    pools_take_turns: bool = _rule(False, "Single-node candidates are taken one of each pool in turn.")

    # ------------------------------------------------------------ simulation
    others_pods_count: bool = _rule(
        False,
        "Pods that wait, or that leave with other commands, are placed with the command's own in one order, "
        "and new nodes for them count as its own.",
    )
    checks_launches: bool = _rule(
        True, "A node that has to go waits while nothing that fits its pods could be launched; else it is tried."
    )
    empty_skips_simulation: bool = _rule(True, "A node without pods that move goes without a simulation.")
    unknown_cloud_labels_bar: bool = _rule(
        True,
        "A pool that requires a label of the cloud which no instance type has launches nothing, with a warning; "
        "else such a requirement passes.",
    )
    sticky_daemons: bool = _rule(False, "What a daemon gave up to fit on one template stays given up for the next.")
    unnamed_reservations: bool = _rule(
        False, "A reservation is asked for under an empty label if the provider's label is unknown."
    )

    resizes_count: bool = _rule(
        True, "A pod that is resized in place counts with what its status says; else with its spec.", until=13
    )
    daemons_by_type: bool = _rule(
        True, "What daemons take on a new node is counted for each type; else for all types of the pool.", until=13
    )
    daemon_like_pods: bool = _rule(
        True, "Pods that the setting `daemonLikePods` selects go with their node; else they move like any other."
    )
    resizes_moved: bool = _rule(
        True,
        "A moved pod is simulated with the size with which it comes back (VerticalPodAutoscalers, owners whose pods "
        "came back larger); else with its own.",
    )
    volume_alternatives: bool = _rule(
        True, "Each term of a volume's node affinity is tried; else only the first one.", until=11
    )
    node_limits: bool = _rule(True, "A pool's limit `nodes` counts; else only its other limits.", until=10)
    leaving_volumes_bar: bool = _rule(
        True, "A pending pod whose volume is being deleted is left alone; else it is placed.", until=9
    )

    # ------------------------------------------------------------ prices
    unpriced_node_frees_batch: bool = _rule(
        False, "If the price of one node is unknown, all nodes of its command count as free.", until=13
    )
    savings_threshold: bool = _rule(True, "A cost action has to save its threshold times its disruption cost.")
    waste: bool = _rule(
        True, "A node that has wasted enough may go, although it saves less than its threshold asks for."
    )
    list_prices: bool = _rule(
        False,
        "Decisions use list prices; else what is really paid (`commitments`, `discount`, `surcharge`), which is always "
        "what reports say.",
    )
    float_prices: bool = _rule(
        False, "Prices, savings and disruption costs are compared as floating-point numbers; else exactly."
    )
    hopeful_savings: bool = _rule(
        False, "Savings count a replacement at its cheapest price; else at the dearest that could come."
    )
    spot_by_requirements: bool = _rule(
        False, "A replacement may be spot if its requirements allow it; else if a spot offering is there."
    )
    spot_gate: bool = _rule(False, "Karpenter's feature gate SpotToSpotConsolidation sets `spotToSpotConsolidation`.")
    strict_min_values: bool = _rule(
        False, "minValues is checked after each price filter, under `minValuesPolicy: BestEffort` too."
    )
    tracked_totals: bool = _rule(
        False, "Balanced pools are measured against the running totals that Karpenter keeps; else against all nodes."
    )

    # ------------------------------------------------------------ validation
    revalidates_empty: bool = _rule(True, "A node that is not empty any more drops out of a command for empty nodes.")
    revalidates_balanced: bool = _rule(True, "The Balanced score is asked again before a command is carried out.")
    accepts_fewer_nodes: bool = _rule(
        True, "A node that has to go goes with fewer replacements than planned, if fewer do; else it is refused."
    )

    validates_drift: bool = _rule(
        True,
        "Commands for drifted and unhealthy nodes wait for a validation like all others; else they begin at once.",
    )

    # ------------------------------------------------------------ over time
    last_look: bool = _rule(
        True, "Pods and PDBs are read once more before the first deletion or eviction of a command, and at its undoing."
    )
    waits_for_validation: bool = _rule(
        False, "The loop sleeps through the validation of what it found; else it goes on."
    )
    waits_for_launches: bool = _rule(False, "No round starts while a NodeClaim has not been launched.")
    remembers_regrowth: bool = _rule(True, "A pool in which a cost action did not hold (a node came back) waits.")
    steers: bool = _rule(
        True, "Nodes are helped to empty by themselves (`steering`), and the soft taint for that counts for nothing."
    )
    plays_karpenter: bool = _rule(
        False,
        "In the simulator the engine is Karpenter itself: it holds no nodes and shares the provisioner's memory.",
    )


DOVETAIL_RULES: Final = Rules()


def karpenter_rules(minor: int) -> Rules:
    """Return the rules of Karpenter v1.`minor`."""

    def other(metadata: Mapping[str, int]) -> bool:
        return metadata["since"] <= minor <= metadata["until"]

    return Rules(**{entry.name: entry.default is not other(entry.metadata) for entry in fields(Rules)})


KARPENTER_RULES: Final = karpenter_rules(NEWEST)


def about(name: str) -> str:
    """Return what a rule means if it is true."""
    return next(str(entry.metadata["about"]) for entry in fields(Rules) if entry.name == name)
