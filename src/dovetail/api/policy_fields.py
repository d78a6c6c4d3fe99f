"""The fields of a pool's disruption policy, one entry each: what it accepts, its default, its schema and its docs.

Parsing (`api.policy`), validation (`api.manifests.manifest_shapes`), the CRD (`api.crds.policy`), `poolDefaults`
(`api.settings`) and the table in docs/rules.md (`tools/build_policy_docs.py`) all read this table. Fields with parts of
their own (budgets, windows, health, repair) have only their name and docs here; their readers, shapes and schemas are
in those modules. So are the first parts of a budget; the others are in `BUDGET_FIELDS`. See docs/rules.md#policy and
docs/decisions/0027-one-table-of-policy-fields.md; grace-period Proposed Spec, savings-threshold Recommendation,
disruption-controls Proposed Spec. Sits in api, below all of these.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.model.money import Money, parse_money
from dovetail.model.policies.policy import ConsolidationPolicy, RestartPrice
from dovetail.model.timing.duration import parse_nillable, parse_simple

TEXT_MAX: Final = 256
HOURS_AND_MINUTES: Final = r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"
DURATION_OR_NEVER: Final = r"^(([0-9]+(s|m|h))+|Never)$"
_UNPAYABLE: Final = parse_money("1e29")
_NO_CONSOLIDATION: Final = "nothing is consolidated until it is mended"
_CONTROLS: Final = "[disruption controls](designs/disruption-controls.md)"
_OWN_CONTROLS: Final = "[controls](operators-controls.md)"


class DocsRow(NamedTuple):
    """A line of the table in docs/rules.md, without the field's name."""

    accepts: str
    otherwise: str
    source: str = "-"


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A type of values: what is accepted, what to write instead, and how a valid value is read.

    Numbers are 0 or more. `must_be` completes "<field> must be ..." in the CRD, `write` completes "write ..." in
    validation. `bounds`: the shortest and the longest duration. `read` may raise ValueError for a value of the right
    form, such as a duration that does not fit 64 bits.
    """

    write: str = ""
    must_be: str = ""
    pattern: str = ""
    longest: int | None = None
    choices: tuple[str, ...] = ()
    is_number: bool = False
    is_length: bool = False
    bounds: tuple[str, str] | None = None
    read: Callable[[Any], Any] = str


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of the policy.

    `form`: None for a field with parts of its own. `attribute`: the field of `DisruptionPolicy` that `form.read` sets;
    empty: `api.policy` has a reader of its own for it. `default`: what the CRD fills in. `consequence`: what is off
    while the value can't be read. `for_consolidation`: static pools ignore it. `by_settings`: `poolDefaults` may set
    it. `karpenters`: Karpenter's own CRD has it too. `parts`: further lines of the docs.
    """

    name: str
    docs: DocsRow
    parts: tuple[tuple[str, DocsRow], ...] = ()
    form: Form | None = None
    attribute: str = ""
    description: str = ""
    default: Any = None
    consequence: str = _NO_CONSOLIDATION
    for_consolidation: bool = False
    by_settings: bool = False
    karpenters: bool = False

    @property
    def closes_consolidation(self) -> bool:
        """Return whether an unreadable value switches consolidation off."""
        return self.consequence == _NO_CONSOLIDATION


def _money(number: Any) -> Money:
    try:
        return parse_money(number)
    except ValueError:
        return _UNPAYABLE  # a number, as its form has been checked, but too large: no move will ever save that much


def _restart_price(text: str) -> RestartPrice:
    if text[-1].isdigit():
        return RestartPrice(dollars=_money(text), text=text)
    time, slash, _ = text.partition("/")
    return RestartPrice(time=parse_nillable(time, "smh") or 0, per_cpu=bool(slash), text=text)


def consolidation_policy(word: str) -> ConsolidationPolicy:
    """Read a policy's name, including the v1beta1 name (disruption-controls)."""
    return ConsolidationPolicy("WhenEmptyOrUnderutilized" if word == "WhenUnderutilized" else word)


def _dollars(example: str) -> Form:
    return Form(is_number=True, write=f"dollars such as {example} (no quotes)", read=_money)


_POLICY: Final = Form(
    choices=("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced", "WhenUnderutilized"), read=consolidation_policy
)
_LENGTH_OR_NEVER: Final = Form(
    pattern=DURATION_OR_NEVER,
    must_be="a duration of s, m and h parts such as 30s or 1h30m, or Never",
    write="a duration such as 30s, 5m or 1h30m, or Never",
    is_length=True,
    read=parse_nillable,
)
_DAYS_OR_NEVER: Final = Form(
    pattern=r"^(([0-9]+(s|m|h|d))+|Never)$",
    must_be="a duration of s, m, h and d parts such as 720h or 30d, or Never",
    write="a duration such as 720h or 30d, or Never",
    is_length=True,
    read=lambda text: parse_nillable(text, "smhd"),
)
_DAYS: Final = Form(
    pattern=r"^([0-9]+(s|m|h|d))+$",
    must_be="a duration of s, m, h and d parts such as 30m or 1d",
    write="a duration such as 30m, 2h or 1d",
    longest=TEXT_MAX,
    is_length=True,
    read=lambda text: parse_nillable(text, "smhd"),
)
_PRICE: Final = Form(
    pattern=r"^([0-9]{1,9}(\.[0-9]{1,18})?|([0-9]{1,5}(s|m|h))+(/cpu)?)$",
    must_be="dollars such as '0.005', or a duration of s, m and h parts such as 15m or 10m/cpu",
    write='dollars such as "0.005", or a time such as 15m or 10m/cpu',
    longest=32,
    read=_restart_price,
)

_RATE: Final = Form(
    pattern=HOURS_AND_MINUTES,
    must_be="hours and minutes such as 1h or 30m",
    write="hours and minutes from 1m to 168h, such as 1h",
    longest=TEXT_MAX,
    bounds=("1m", "168h"),
    read=lambda text: parse_simple(text, "smh"),
)

BUDGET_FIELDS: Final = (
    Field(
        name="per",
        attribute="per",
        form=_RATE,
        description="Makes it a rate: at most `nodes` nodes may begin to leave within any span of this length.",
        docs=DocsRow("`1m` to `168h`: a rate", "unset: off", _OWN_CONTROLS),
    ),
)
"""Parts of a budget with one value: `attribute` is a field of `Budget`. Rules between parts are in `budget_rules`."""

FIELDS: Final = (
    Field(
        name="consolidationPolicy",
        attribute="consolidation_policy",
        form=_POLICY,
        default="WhenEmptyOrUnderutilized",
        description="Which nodes consolidation may take. WhenUnderutilized is the older word for "
        "WhenEmptyOrUnderutilized. Ignored on a static pool.",
        for_consolidation=True,
        karpenters=True,
        docs=DocsRow(
            "`WhenEmpty`, `WhenEmptyOrUnderutilized`, `Balanced`; `WhenUnderutilized` is the old name of the second",
            "`WhenEmptyOrUnderutilized`",
            f"{_CONTROLS}, Proposed Spec, Karpenter",
        ),
    ),
    Field(
        name="consolidateAfter",
        attribute="consolidate_after",
        form=_LENGTH_OR_NEVER,
        default="15s",
        description="How long after the last pod came or went a node becomes a candidate for consolidation; "
        "Never switches consolidation off. Ignored on a static pool.",
        for_consolidation=True,
        by_settings=True,
        karpenters=True,
        docs=DocsRow("`30s`, `10m`, `1h30m`, `Never`", "`15s`", f"{_CONTROLS}, Validation/Defaults"),
    ),
    Field(
        name="expireAfter",
        form=_DAYS_OR_NEVER,
        description="The age at which a node is replaced gracefully, within the budgets. Must be shorter than the "
        "template's expireAfter, which Karpenter enforces forcefully. Unset: the NodeClaim's own.",
        consequence="no node expires gracefully until it is mended",
        docs=DocsRow(
            "as above, also days (`30d`)",
            "the claim's own `expireAfter` (720h unless the template says otherwise)",
            f"{_CONTROLS}, Proposed Spec",
        ),
    ),
    Field(
        name="consolidationGracePeriod",
        attribute="grace_period",
        form=_LENGTH_OR_NEVER,
        description="How long after the last pod came or went a node stays out of consolidation altogether, neither "
        "emptied nor filled. Unset or Never: off. Ignored on a static pool.",
        for_consolidation=True,
        by_settings=True,
        docs=DocsRow("`30m`, `Never`", "off; `Never` is off too", "[grace period](designs/grace-period.md), Defaults"),
    ),
    Field(
        name="consolidationSavingsThreshold",
        attribute="savings_threshold",
        form=_dollars("0.01"),
        default=0.01,
        description="What a consolidation must save at least, in dollars per hour for each unit of disruption cost; "
        "0 asks for no minimum. Alpha. Ignored on a static pool.",
        for_consolidation=True,
        by_settings=True,
        docs=DocsRow(
            "dollars per hour per unit of disruption cost, 0 or more; alpha",
            "0.01; 0 requires no saving",
            "[savings threshold](designs/savings-threshold.md), Recommendation",
        ),
    ),
    Field(
        name="disruptionPrice",
        attribute="disruption_price",
        form=_dollars("0.005"),
        description="What one unit of disruption cost, about a pod's restart, is worth in dollars. A consolidation "
        "that saves too little to go at once goes when so much has been wasted without it. Unset: off. Alpha. Ignored "
        "on a static pool.",
        for_consolidation=True,
        by_settings=True,
        docs=DocsRow(
            "dollars per unit of disruption cost, 0 or more; alpha",
            "unset: off; set: a node that saves too little to be removed at once is removed when keeping it has cost "
            "this much ([better decisions](better-decisions.md))",
        ),
    ),
    Field(
        name="restartPrice",
        attribute="restart_price",
        form=_PRICE,
        description="What one unit of disruption cost, about a pod's restart, is worth: dollars such as 0.005, or a "
        "time such as 15m, which is that much of the pod's own share of its node's price; 10m/cpu is that much of "
        "the price of one CPU of its node. A consolidation must then be expected to save that much before the saving "
        "ends. Unset: off. Alpha. Ignored on a static pool.",
        for_consolidation=True,
        by_settings=True,
        docs=DocsRow(
            'a text: dollars (`"0.005"`) or a time (`15m`, `10m/cpu`); alpha',
            "unset: off; set: a cost command must be expected to save what its restarts are worth before the saving "
            "ends ([one price](better-decisions.md#one-price))",
        ),
    ),
    Field(
        name="budgets",
        karpenters=True,
        docs=DocsRow("up to 50", "one: `nodes: 10%`", f"{_CONTROLS}, Validation/Defaults"),
        parts=tuple((f"budgets[].{part.name}", part.docs) for part in BUDGET_FIELDS),
    ),
    Field(name="windows", docs=DocsRow("up to 50 of `{schedule, duration, reasons}`", "none: always", _OWN_CONTROLS)),
    Field(
        name="minNodeAge",
        attribute="min_node_age",
        form=_DAYS,
        description="How old a NodeClaim must be before its node is consolidated, also when it is empty.",
        docs=DocsRow("`30m`, `2h`, `1d`", "unset: off", _OWN_CONTROLS),
    ),
    Field(
        name="health",
        docs=DocsRow("`{notReadyNodes, pendingPods, movedPodsReadyWithin}`", "unset: off", _OWN_CONTROLS),
    ),
    Field(name="repair", docs=DocsRow("up to 50 of `{condition, status, for, drainFor}`", "none", _OWN_CONTROLS)),
)
"""Every field of `spec.disruption`, in the order of the CRD and of the docs."""
BY_NAME: Final = {field.name: field for field in FIELDS}
FOR_CONSOLIDATION: Final = tuple(field.name for field in FIELDS if field.for_consolidation)
"""The fields that a static pool ignores."""
LENGTHS: Final = tuple(field.name for field in FIELDS if field.form is not None and field.form.is_length)
"""The fields that hold a duration."""
BY_SETTINGS: Final = tuple(field.name for field in FIELDS if field.by_settings)
"""The fields that `poolDefaults` may set."""
FILLED_IN: Final = {name: BY_NAME[name].default for name in BY_SETTINGS if BY_NAME[name].default is not None}
"""What the CRD puts into a pool that says nothing; nobody can tell it from the same value written by a person."""


def docs_table() -> Iterator[str]:
    """Yield the lines of the table in docs/rules.md."""
    yield "| field | accepts | default | from |"
    yield "|---|---|---|---|"
    for field in FIELDS:
        for name, row in ((field.name, field.docs), *field.parts):
            yield f"| `{name}` | {row.accepts} | {row.otherwise} | {row.source} |"
