"""The schema of a NodePool's disruption policy: the fields that the designs add, and their rules for the API server.

Spec section 1; grace-period Proposed Spec, savings-threshold Recommendation, topology-budgets API Design,
disruption-controls Proposed Spec. `api.policy` and `api.manifests.budget_rules` apply the same rules at run time. Sits
in api, below `definitions`.
"""

from typing import Final

from dovetail.api.crds import words
from dovetail.api.crds.cron_rules import SCHEDULE_LENGTH_MAX, schedule_rules

_LABEL_NAME: Final = rf"^({words.DNS}/)?([A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?[A-Za-z0-9]$"
_DURATION_WITH_DAYS_OR_NEVER: Final = r"^(([0-9]+(s|m|h|d))+|Never)$"
_WINDOW: Final = r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"
_NODES: Final = r"^((100|[0-9]{1,2})%|[0-9]+)$"
_POLICIES: Final = ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced", "WhenUnderutilized"]
_REASONS: Final = ["Underutilized", "Empty", "Drifted", "Unhealthy", "Expired"]
_QUALIFIED: Final = rf"^({words.DNS}/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
_BUDGET_TEXT_LENGTH_MAX: Final = 256


def disruption() -> words.Schema:
    """Return the schema of `spec.disruption`."""
    never = "must be a duration of s, m and h parts such as 30s or 1h30m, or Never"
    return words.object_of(
        "How and when nodes of this pool may be disrupted.",
        {
            "consolidationPolicy": words.text(
                "Which nodes consolidation may take. WhenUnderutilized is the older word for WhenEmptyOrUnderutilized. "
                "Ignored on a static pool.",
                enum=_POLICIES,
                default="WhenEmptyOrUnderutilized",
            ),
            "consolidateAfter": words.checked(
                "How long after the last pod came or went a node becomes a candidate for consolidation; "
                "Never switches consolidation off. Ignored on a static pool.",
                words.DURATION_OR_NEVER,
                f"consolidateAfter {never}",
                default="15s",
            ),
            "expireAfter": words.checked(
                "The age at which a node is replaced gracefully, within the budgets. Must be shorter than the "
                "template's expireAfter, which Karpenter enforces forcefully. Unset: the NodeClaim's own.",
                _DURATION_WITH_DAYS_OR_NEVER,
                "expireAfter must be a duration of s, m, h and d parts such as 720h or 30d, or Never",
            ),
            "consolidationGracePeriod": words.checked(
                "How long after the last pod came or went a node stays out of consolidation altogether, neither "
                "emptied nor filled. Unset or Never: off. Ignored on a static pool.",
                words.DURATION_OR_NEVER,
                f"consolidationGracePeriod {never}",
            ),
            "consolidationSavingsThreshold": {
                "description": "What a consolidation must save at least, in dollars per hour for each unit of "
                "disruption cost; 0 asks for no minimum. Alpha. Ignored on a static pool.",
                "type": "number",
                "minimum": 0,
                "default": 0.01,
            },
            "disruptionPrice": {
                "description": "What one unit of disruption cost, about a pod's restart, is worth in dollars. A "
                "consolidation that saves too little to go at once goes when so much has been wasted without it. "
                "Unset: off. Alpha. Ignored on a static pool.",
                "type": "number",
                "minimum": 0,
            },
            "budgets": words.list_of(
                "How many nodes may be disrupted at the same time. Of the budgets that are active and name the "
                "reason, the strictest counts.",
                _budget(),
                maxItems=50,
                default=[{"nodes": "10%"}],
            ),
            "windows": words.list_of(
                "When nodes may be disrupted for a reason: outside of every window that names it, nothing starts. "
                "Budgets apply inside.",
                _window(),
                maxItems=50,
            ),
            "minNodeAge": words.checked(
                "How old a NodeClaim must be before its node is consolidated, also when it is empty.",
                r"^([0-9]+(s|m|h|d))+$",
                "minNodeAge must be a duration of s, m, h and d parts such as 30m or 1d",
                maxLength=_BUDGET_TEXT_LENGTH_MAX,
            ),
            "health": _health(),
            "repair": words.list_of(
                "Node conditions that make a node a candidate for repair.", _repair_rule(), maxItems=50
            ),
        },
        default={"consolidateAfter": "15s"},
    )


def _schedule(description: str) -> words.Schema:
    return words.text(description, maxLength=SCHEDULE_LENGTH_MAX, **words.rules(*schedule_rules()))


def _length(description: str, name: str) -> words.Schema:
    return words.checked(
        description,
        r"^([0-9]+(s|m|h))+$",
        f"{name} must be a duration of s, m and h parts such as 30s or 1h30m",
        maxLength=_BUDGET_TEXT_LENGTH_MAX,
    )


def _reasons(description: str) -> words.Schema:
    kind = words.text("A kind of disruption.", enum=_REASONS)
    return words.list_of(description, kind, kind="set", maxItems=50)


def _window() -> words.Schema:
    return words.object_of(
        "A span of time in which nodes may be disrupted.",
        {
            "schedule": _schedule(
                "When the window opens: five cron fields, or @daily and its like, in UTC unless TZ=Area/City stands "
                "in front."
            ),
            "duration": words.checked(
                "How long the window stays open after each hit of its schedule, in hours and minutes.",
                _WINDOW,
                "duration must be hours and minutes such as 8h, 30m or 1h30m",
                maxLength=_BUDGET_TEXT_LENGTH_MAX,
            ),
            "reasons": _reasons("The kinds of disruption that the window is about; none listed means all."),
        },
        required=["schedule", "duration"],
    )


def _health() -> words.Schema:
    return words.object_of(
        "Limits whose violation stops voluntary disruption in this pool.",
        {
            "notReadyNodes": words.checked(
                "How many nodes of the pool may be NotReady: a count, or a percentage of its nodes, rounded up.",
                _NODES,
                "notReadyNodes must be a count such as '5' or a percentage from '0%' to '100%'",
                maxLength=_BUDGET_TEXT_LENGTH_MAX,
            ),
            "pendingPods": words.object_of(
                "Stop once this many pods that could run on the pool have been unschedulable for this long.",
                {
                    "count": words.whole("How many pods.", minimum=1, maximum=2**31 - 1),
                    "for": _length("How long they have been unschedulable.", "for"),
                },
                required=["count", "for"],
            ),
            "movedPodsReadyWithin": _length(
                "How long after a command the owners of the pods it moved may take until they have as many ready pods "
                "as before; after that the pool halts.",
                "movedPodsReadyWithin",
            ),
        },
    )


def _repair_rule() -> words.Schema:
    return words.object_of(
        "A node with this condition for this long is replaced.",
        {
            "condition": words.text("The type of a node condition.", pattern=_QUALIFIED, minLength=1, maxLength=316),
            "status": words.text("The status that makes it unhealthy.", enum=["True", "False", "Unknown"]),
            "for": _length("How long the condition must have had the status.", "for"),
            "drainFor": _length("How long the drain may take; unset: as long as the NodeClaim allows.", "drainFor"),
        },
        required=["condition", "status", "for"],
    )


def _budget() -> words.Schema:
    return words.object_of(
        "A cap on nodes that are disrupted at the same time.",
        {
            "nodes": words.checked(
                "The cap: a count, or a percentage of the pool's nodes (with topologyKey the domain's), rounded up.",
                _NODES,
                "nodes must be a count such as '5' or a percentage from '0%' to '100%'",
                default="10%",
                maxLength=_BUDGET_TEXT_LENGTH_MAX,
            ),
            "schedule": _schedule(
                "When the budget becomes active: five cron fields, or @daily and its like, in UTC unless "
                "TZ=Area/City stands in front. Without it the budget is always active. Needs duration."
            ),
            "duration": words.checked(
                "How long the budget stays active after each hit of its schedule, in hours and minutes.",
                _WINDOW,
                "duration must be hours and minutes such as 8h, 30m or 1h30m",
                maxLength=_BUDGET_TEXT_LENGTH_MAX,
            ),
            "reasons": _reasons("The kinds of disruption that the budget holds for; none listed means all."),
            "topologyKey": words.text(
                "A node label. The cap then holds for the nodes of each of its values apart, and for drift only.",
                pattern=_LABEL_NAME,
                maxLength=317,
                **words.rules(
                    words.rule(
                        f"self.matches(r'{_LABEL_NAME}')",
                        "topologyKey must be a label name such as topology.kubernetes.io/zone",
                    ),
                    words.rule(
                        "self.matches(r'^([^/]{0,253}/)?[^/]*$')",
                        "topologyKey must have at most 253 characters before its slash",
                    ),
                ),
            ),
            "sequential": {
                "description": "Let drift finish in one value of topologyKey before it starts in the next.",
                "type": "boolean",
            },
            "per": words.text(
                "Makes it a rate: at most `nodes` nodes may begin to leave within any span of this length.",
                pattern=_WINDOW,
                maxLength=_BUDGET_TEXT_LENGTH_MAX,
                **words.rules(
                    words.rule(f"self.matches(r'{_WINDOW}')", "per must be hours and minutes such as 1h or 30m"),
                    words.rule(
                        f"!self.matches(r'{_WINDOW}') || "
                        "(duration(self) >= duration('1m') && duration(self) <= duration('168h'))",
                        "per must be from 1m to 168h",
                    ),
                ),
            ),
        },
        required=["nodes"],
        **words.rules(
            words.rule(
                "has(self.schedule) == has(self.duration)",
                "schedule and duration go together: set both, or neither for a budget that is always active",
            ),
            words.rule(
                "!has(self.sequential) || !self.sequential || has(self.topologyKey)",
                "sequential needs topologyKey: name the node label to go by, such as topology.kubernetes.io/zone",
            ),
            words.rule(
                "!has(self.per) || !has(self.topologyKey)",
                "per and topologyKey don't go together: make two budgets of it",
            ),
        ),
    )
