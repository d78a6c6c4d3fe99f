"""The schema of a NodePool's disruption policy: the fields that the designs add, and their rules for the API server.

See docs/rules.md#policy; grace-period Proposed Spec, savings-threshold Recommendation, topology-budgets API Design,
disruption-controls Proposed Spec. Simple fields are in the table of `api.policy_fields`; those with parts of their own
(budgets, windows, health, repair) are here. `api.policy` and `api.manifests.budget_rules` apply the same rules at run
time. Sits in api, below `definitions`.
"""

from typing import Final

from dovetail.api.crds import words
from dovetail.api.crds.cron_rules import SCHEDULE_LENGTH_MAX, schedule_rules
from dovetail.api.policy_fields import BUDGET_FIELDS, BY_NAME, FIELDS, HOURS_AND_MINUTES, TEXT_MAX, Field, Form

_LABEL_NAME: Final = rf"^({words.DNS}/)?([A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?[A-Za-z0-9]$"
_LABEL_NAME_OR_NONE: Final = rf"^$|{_LABEL_NAME}"
_NODES: Final = r"^((100|[0-9]{1,2})%|[0-9]+)$"
_REASONS: Final = ["Underutilized", "Empty", "Drifted", "Unhealthy", "Expired"]
_QUALIFIED: Final = rf"^({words.DNS}/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"


def disruption() -> words.Schema:
    """Return the schema of `spec.disruption`: the fields of the table, and those with parts of their own."""
    structured = _structured()
    return words.object_of(
        "How and when nodes of this pool may be disrupted.",
        {field.name: _schema(field, field.form) if field.form else structured[field.name] for field in FIELDS},
        default={"consolidateAfter": BY_NAME["consolidateAfter"].default},
    )


def _schema(field: Field, form: Form) -> words.Schema:
    more = {} if field.default is None else {"default": field.default}
    if form.is_number:
        return {"description": field.description, "type": "number", "minimum": 0, **more}
    if form.choices:
        return words.text(field.description, enum=list(form.choices), **more)
    more |= {} if form.longest is None else {"maxLength": form.longest}
    rules = [words.rule(f"self.matches(r'{form.pattern}')", f"{field.name} must be {form.must_be}")]
    if form.bounds is not None:
        within = "duration(self) >= duration('{}') && duration(self) <= duration('{}')".format(*form.bounds)
        message = "{} must be from {} to {}".format(field.name, *form.bounds)
        rules.append(words.rule(f"!self.matches(r'{form.pattern}') || ({within})", message))
    return words.text(field.description, pattern=form.pattern, **more, **words.rules(*rules))


def _structured() -> dict[str, words.Schema]:
    return {
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
        "health": _health(),
        "repair": words.list_of(
            "Node conditions that make a node a candidate for repair.", _repair_rule(), maxItems=50
        ),
    }


def _schedule(description: str) -> words.Schema:
    return words.text(description, maxLength=SCHEDULE_LENGTH_MAX, **words.rules(*schedule_rules()))


def _length(description: str, name: str) -> words.Schema:
    return words.checked(
        description,
        r"^([0-9]+(s|m|h))+$",
        f"{name} must be a duration of s, m and h parts such as 30s or 1h30m",
        maxLength=TEXT_MAX,
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
                HOURS_AND_MINUTES,
                "duration must be hours and minutes such as 8h, 30m or 1h30m",
                maxLength=TEXT_MAX,
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
                maxLength=TEXT_MAX,
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
                maxLength=TEXT_MAX,
            ),
            "schedule": _schedule(
                "When the budget becomes active: five cron fields, or @daily and its like, in UTC unless "
                "TZ=Area/City stands in front. Without it the budget is always active. Needs duration."
            ),
            "duration": words.checked(
                "How long the budget stays active after each hit of its schedule, in hours and minutes.",
                HOURS_AND_MINUTES,
                "duration must be hours and minutes such as 8h, 30m or 1h30m",
                maxLength=TEXT_MAX,
            ),
            "reasons": _reasons("The kinds of disruption that the budget holds for; none listed means all."),
            "topologyKey": words.text(
                "A node label. The cap then holds for the nodes of each of its values apart, and for drift only. "
                "Empty is the same as none.",
                pattern=_LABEL_NAME_OR_NONE,
                maxLength=317,
                **words.rules(
                    words.rule(
                        f"self.matches(r'{_LABEL_NAME_OR_NONE}')",
                        "topologyKey must be a label name such as topology.kubernetes.io/zone",
                    ),
                    words.rule(
                        "self.matches(r'^([^/]{0,253}/)?[^/]*$')",
                        "topologyKey must have at most 253 characters before its slash",
                    ),
                ),
            ),
            "sequential": {
                "description": "Let drift finish in one value of topologyKey before it starts in the next: the value "
                "with the oldest drift first. The annotation dovetail.dev/rolling-domain names the one that was begun. "
                "Requires topologyKey.",
                "type": "boolean",
            },
            **{part.name: _schema(part, part.form) for part in BUDGET_FIELDS if part.form},
        },
        required=["nodes"],
        **words.rules(
            words.rule(
                "has(self.schedule) == has(self.duration)",
                "schedule and duration go together: set both, or neither for a budget that is always active",
            ),
            words.rule(
                "!has(self.sequential) || !self.sequential || (has(self.topologyKey) && self.topologyKey != '')",
                "'sequential' requires 'topologyKey'",
            ),
            words.rule(
                "!has(self.per) || !has(self.topologyKey) || self.topologyKey == ''",
                "per and topologyKey don't go together: make two budgets of it",
            ),
        ),
    )
