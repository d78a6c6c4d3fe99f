"""The metrics of the controller: Karpenter's names if Karpenter has them, `dovetail_` for what only Dovetail knows.

Fed from the engine's reports and its last round; knows no cluster. Every metric is declared here once, so that the
dashboard and the alert rules can be checked against this list.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dovetail.live.observability.round_metrics import RoundMetrics
from dovetail.model.verdicts import ELIGIBLE


class Metrics:
    """One registry and everything in it."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.decisions = Counter(
            "karpenter_voluntary_disruption_decisions",
            "Disruption decisions carried out.",
            ["decision", "reason", "consolidation_type", "action"],
            registry=registry,
        )
        self.eligible = Gauge(
            "karpenter_voluntary_disruption_eligible_nodes",
            "Nodes that a method could take.",
            ["reason"],
            registry=registry,
        )
        self.evaluation = Histogram(
            "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
            "How long a round takes, by the method that ended it.",
            ["reason", "consolidation_type"],
            registry=registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        self.queue_failures = Counter(
            "karpenter_voluntary_disruption_queue_failures",
            "Replacements that were not initialized when their command was rolled back.",
            ["decision", "reason", "consolidation_type", "action"],
            registry=registry,
        )
        self.failed_validations = Counter(
            "karpenter_voluntary_disruption_failed_validations",
            "Candidates of commands that did not pass validation.",
            ["consolidation_type", "action"],
            registry=registry,
        )
        self.allowed = Gauge(
            "karpenter_nodepools_allowed_disruptions",
            "How many nodes a pool may lose at once, leaving ones included.",
            ["nodepool", "reason"],
            registry=registry,
        )
        self.consuming = Gauge(
            "karpenter_nodepools_nodes_consuming_budgets",
            "Nodes that count against a pool's budgets.",
            ["nodepool", "reason"],
            registry=registry,
        )
        self.decisions_by_pool = Counter(
            "karpenter_voluntary_disruption_decisions_by_nodepool",
            "Disruption decisions carried out, once for each pool involved.",
            ["nodepool", "decision", "reason", "consolidation_type", "action"],
            registry=registry,
        )
        self.terminate_first = Counter(
            "karpenter_voluntary_disruption_terminate_first_decisions",
            "Decisions to delete a node before its replacement comes.",
            ["nodepool", "reason", "terminate_first_reason", "action"],
            registry=registry,
        )
        self.timeouts = Counter(
            "karpenter_voluntary_disruption_consolidation_timeouts",
            "Rounds that ran out of time; Dovetail's have no limit.",
            ["consolidation_type"],
            registry=registry,
        )
        for kind in ("multi", "single"):
            self.timeouts.labels(kind)
        self.moves = Counter(
            "karpenter_consolidation_moves",
            "Cost actions that were judged.",
            ["decision", "nodepool", "policy"],
            registry=registry,
        )
        self.scores = Histogram(
            "karpenter_consolidation_score",
            "Scores of cost actions in pools with the policy Balanced.",
            ["decision", "nodepool"],
            registry=registry,
            buckets=(0.1, 0.25, 0.33, 0.5, 1, 2, 5, 10),
        )
        self.claims_created = Counter(
            "karpenter_nodeclaims_created",
            "NodeClaims that Dovetail created.",
            ["reason", "nodepool", "min_values_relaxed"],
            registry=registry,
        )
        disrupted = ["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"]
        self.claims_disrupted = Counter(
            "karpenter_nodeclaims_disrupted", "NodeClaims that Dovetail deleted.", disrupted, registry=registry
        )
        self.pods_disrupted = Counter(
            "karpenter_pods_disruption_initiated",
            "Pods on nodes whose NodeClaim Dovetail deleted.",
            disrupted,
            registry=registry,
        )
        self.threshold_blocked = Counter(
            "karpenter_consolidation_threshold_blocked",
            "Moves that did not save enough for what they disturb.",
            ["nodepool"],
            registry=registry,
        )
        self.rounds = RoundMetrics(registry)
        self.held_back = Gauge(
            "dovetail_held_back_dollars_per_hour",
            "What lifting a gate of a pool would save, as `dovetail blockers` finds it; these don't add up. No pool: a "
            "setting or CapacityBuffers, for all pools.",
            ["nodepool", "gate"],
            registry=registry,
        )
        self.budget_limit = Gauge(
            "dovetail_budget_limit_nodes",
            "What the budgets allow at once; for drift within topology budgets.",
            ["nodepool", "reason"],
            registry=registry,
        )
        self.budget_used = Gauge(
            "dovetail_budget_used_nodes", "Nodes that count against it.", ["nodepool", "reason"], registry=registry
        )
        self.budget_left = Gauge(
            "dovetail_budget_left_nodes", "What is left of it.", ["nodepool", "reason"], registry=registry
        )
        self.expiring = Gauge(
            "dovetail_expiring_nodes",
            "Nodes that Karpenter ends by force within 24h and 168h.",
            ["nodepool", "within"],
            registry=registry,
        )
        self.expiring_late = Gauge(
            "dovetail_expiring_nodes_late",
            "Nodes that Karpenter ends by force within a week before the budgets can take them.",
            ["nodepool"],
            registry=registry,
        )
        self.verdicts = Gauge(
            "dovetail_node_verdicts", "Nodes by the gate that holds them.", ["nodepool", "gate"], registry=registry
        )
        self.savings = Counter(
            "dovetail_realised_savings_dollars_per_hour",
            "Dollars per hour saved by cost actions that have ended well.",
            ["nodepool", "action"],
            registry=registry,
        )
        self._declare_outcomes()
        self.commands = Gauge("dovetail_commands_in_flight", "Commands under way.", ["phase"], registry=registry)
        self.phase_age = Gauge(
            "dovetail_command_phase_age_seconds",
            "How long the oldest command of each phase has been in it; draining counts from the first deletion.",
            ["phase"],
            registry=registry,
        )
        self.neighbours = Counter(
            "dovetail_neighbour_signs",
            "Signs of another controller that disrupts a managed NodePool.",
            ["nodepool", "neighbour"],
            registry=registry,
        )
        self.rolled_back = Counter(
            "dovetail_commands_rolled_back", "Commands undone.", ["reason", "action"], registry=registry
        )
        self.evaluation_age = Gauge(
            "dovetail_evaluation_age_seconds", "Seconds since the last round ended.", registry=registry
        )
        self.leader = Gauge(
            "dovetail_leader", "1 where this process may act: it renewed the Lease in time.", registry=registry
        )
        self.lease_age = Gauge(
            "dovetail_lease_age_seconds",
            "Seconds since this process last renewed the Lease; infinite where it never has.",
            registry=registry,
        )
        self.synced = Gauge(
            "dovetail_synced", "1 where everything has been seen and no view is too old.", registry=registry
        )
        self.view_age = Gauge(
            "dovetail_view_age_seconds",
            "Seconds since the API server last said what there is.",
            ["kind"],
            registry=registry,
        )
        self.malformed = Counter(
            "dovetail_malformed_answers",
            "Answers of the API server, or of a proxy, that could not be read.",
            ["resource"],
            registry=registry,
        )
        self.unread = Counter(
            "dovetail_unreadable_objects",
            "Objects that could not be read as they are.",
            ["kind"],
            registry=registry,
        )
        self.loop_lag = Gauge(
            "dovetail_loop_lag_seconds", "How late the event loop was, at most, within a minute.", registry=registry
        )
        self.held = Gauge("dovetail_held_nodes", "Nodes that carry Dovetail's hold.", registry=registry)
        self.observe = Gauge("dovetail_observe_only", "1 where nothing is touched.", registry=registry)
        self.events = Counter("dovetail_watch_events", "Changes seen.", ["kind"], registry=registry)
        self.relists = Counter("dovetail_watch_lists", "Full lists.", ["kind"], registry=registry)
        self.actions = Counter(
            "dovetail_api_writes",
            "Instructions carried out.",
            ["kind", "outcome"],
            registry=registry,
        )
        self.price_age = Gauge("dovetail_catalogue_age_seconds", "Age of the price table in use.", registry=registry)
        self.crd_fields = Gauge(
            "dovetail_crd_has_our_fields", "1 where the NodePool CRD has Dovetail's fields.", registry=registry
        )

    def _declare_outcomes(self) -> None:
        """Declare what commands promised, and the outcome within an hour."""
        registry, pool = self.registry, ["nodepool", "action"]
        self.outcomes = Counter(
            "dovetail_outcome_commands",
            "Commands that save money and ended an hour ago; held: they saved nine tenths of what they promised, and "
            "no pod was moved again.",
            ["nodepool", "held", "action"],
            registry=registry,
        )
        self.outcome_promised = Counter(
            "dovetail_outcome_promised_dollars",
            "Dollars that these commands promised for their first hour.",
            pool,
            registry=registry,
        )
        self.outcome_saved = Counter(
            "dovetail_outcome_saved_dollars",
            "Dollars that they saved in it, less the cost of nodes opened since.",
            pool,
            registry=registry,
        )
        self.outcome_reopened = Counter(
            "dovetail_outcome_reopened_nodes",
            "Nodes that a provisioner opened in their pools in that hour.",
            pool,
            registry=registry,
        )
        self.outcome_pods = Counter(
            "dovetail_outcome_pods_moved", "Pods that these commands moved.", pool, registry=registry
        )
        self.outcome_moved_again = Counter(
            "dovetail_outcome_pods_moved_again",
            "Pods of these that another command moved in that hour.",
            pool,
            registry=registry,
        )

        self.recording_bytes = Gauge(
            "dovetail_recording_bytes", "Bytes that this process has added to its recording.", registry=registry
        )
        self.recording_failing = Gauge(
            "dovetail_recording_failing",
            "1 while the recording can't be written.",
            registry=registry,
        )

        self._declare_regrets()

    def _declare_regrets(self) -> None:
        """Declare what was undone lately, by pool (`live.regrets`)."""

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(
                f"dovetail_regret_{name}", f"{about}, in the last two hours.", ["nodepool"], registry=self.registry
            )

        self.regret_moves = gauge("moves", "Pods that had to restart because their node went")
        self.regret_undone_moves = gauge(
            "undone_moves", "Restarts by removals for cost after which a node was opened within the hour"
        )
        self.regret_undone_removals = gauge(
            "undone_removals", "Removals for cost after which a node was opened within the hour"
        )
        self.regret_short_lived_nodes = gauge("short_lived_nodes", "Nodes that lived for less than 15 minutes")
        self.regret_pods_moved_again = gauge(
            "pods_moved_again", "Pods that had to restart although they had just been moved"
        )

    def names(self) -> tuple[str, ...]:
        """Return the names of all metrics as Prometheus sees them."""
        found = {sample.name for family in self.registry.collect() for sample in family.samples}
        families = {family.name + ("_total" if family.type == "counter" else "") for family in self.registry.collect()}
        histograms = {
            family.name + suffix
            for family in self.registry.collect()
            if family.type == "histogram"
            for suffix in ("_bucket", "_sum", "_count")
        }
        return tuple(sorted(found | families | histograms))

    def show_verdicts(self, counts: dict[tuple[str, str], int]) -> None:
        """Set the counts of nodes by pool and gate; what is no longer there becomes zero."""
        self.verdicts.clear()
        for (pool, gate), number in sorted(counts.items()):
            if gate != ELIGIBLE:
                self.verdicts.labels(pool, gate).set(number)
