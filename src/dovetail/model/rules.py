"""The rules in which profiles differ, one named field each: a profile is a set of values, nothing more.

A settings file can't set them: a file changes tunables (`model.settings`), a profile chooses rules. `docs/profiles.md`
lists them all, generated from here. The defaults are Dovetail's; `KARPENTER_RULES` repeats Karpenter v1.15, flaws
included.
"""

from dataclasses import dataclass, field, fields
from typing import Final


def _rule(default: bool, about: str) -> bool:
    """Declare a rule: Dovetail's value, and what it means if it is true."""
    value: bool = field(default=default, metadata={"about": about})
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
    empty_by_pod_cost: bool = _rule(False, "A node is empty if none of its pods has a positive disruption cost.")
    consolidatable_condition: bool = _rule(
        False,
        "`consolidateAfter` is read off the NodeClaim's condition Consolidatable, not counted from the last pod event.",
    )
    grace_period: bool = _rule(True, "`consolidationGracePeriod` holds nodes back and closes them to moved pods.")
    retires_expired: bool = _rule(
        True, "Expired nodes are retired gracefully, within the budgets; else Karpenter removes them."
    )
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
    sticky_daemons: bool = _rule(False, "What a daemon gave up to fit on one template stays given up for the next.")
    unnamed_reservations: bool = _rule(
        False, "A reservation is asked for under an empty label if the provider's label is unknown."
    )

    # ------------------------------------------------------------ prices
    savings_threshold: bool = _rule(True, "A cost action has to save its threshold times its disruption cost.")
    waste: bool = _rule(
        True, "A node that has wasted enough may go, although it saves less than its threshold asks for."
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

    # ------------------------------------------------------------ over time
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
KARPENTER_RULES: Final = Rules(**{entry.name: not entry.default for entry in fields(Rules)})
"""Every rule the other way round: these are the rules in which the two differ."""


def about(name: str) -> str:
    """Return what a rule means if it is true."""
    return next(str(entry.metadata["about"]) for entry in fields(Rules) if entry.name == name)
