"""A NodePool's effective disruption policy: the annotation over the spec over the defaults, parsed and checked.

What can't be read fails closed and is reported, and the rest of the pool keeps working: a broken budget allows 0 for
the reasons it names (for all if those can't be read); an unreadable consolidation field switches consolidation off; an
unreadable expireAfter switches graceful expiry off. See docs/rules.md#policy and docs/deviations.md; grace-period
Proposed Spec, savings-threshold Recommendation, topology-budgets Validation, disruption-controls Validation/Defaults.
Under the profile `karpenter-1.15` the object is read as Karpenter would read it (`karpenter_budgets`). Sits in api;
pure; caches its results, as pools hardly ever change.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.api.controls import LISTED_MAX, read_health, read_repair, read_window, readable_reasons
from dovetail.api.findings import Finding, InputError, Severity, shown
from dovetail.api.manifests.budget_rules import budget_findings, with_text_nodes
from dovetail.api.manifests.karpenter_budgets import karpenter_budgets
from dovetail.api.manifests.manifest_shapes import DISRUPTION
from dovetail.api.manifests.shape import check
from dovetail.api.manifests.validate import read_annotation
from dovetail.api.policy_fields import (
    BUDGET_FIELDS,
    BY_NAME,
    FIELDS,
    FILLED_IN,
    FOR_CONSOLIDATION,
    consolidation_policy,
)
from dovetail.model.names import POLICY_ANNOTATION
from dovetail.model.objects import DisruptionSpec, NodePool
from dovetail.model.policies.controls import AllowWindow, Health, RepairRule
from dovetail.model.policies.policy import Budget, ConsolidationPolicy, DisruptionPolicy, Reason
from dovetail.model.settings import Settings
from dovetail.model.timing.duration import HOUR, parse_nillable, parse_simple
from dovetail.model.timing.windows import window

READ_MAX: Final = 10 * LISTED_MAX
"""How many entries of a list are read although it is too long; more than that and none of them is."""
AMOUNT_MAX: Final = 2**31 - 1
DEFAULT_NODES: Final = "10%"
_TEMPLATE_DEFAULT: Final = 720 * HOUR
_SPEC_PATH: Final = "spec.disruption"
_ANNOTATION_PATH: Final = f"metadata.annotations[{POLICY_ANNOTATION}]"


def effective_policy(node_pool: NodePool, settings: Settings) -> DisruptionPolicy:
    """Return the effective policy of a pool, with the origin of each value, its problems and its warnings."""
    unread = next((text for path, text in node_pool.unread if path.startswith(_SPEC_PATH)), None)
    if unread is not None:
        why = f"{unread}; nothing is disrupted until it is mended"
        return _closed(why, node_pool.spec.replicas is not None, "spec")
    return _policy(
        node_pool.spec.disruption,
        node_pool.metadata.annotations.get(POLICY_ANNOTATION),
        node_pool.spec.template.spec.expire_after,
        node_pool.spec.replicas is not None,
        settings.rules.extended_policy,
        settings.pool_defaults,
    )


@lru_cache(maxsize=1 << 13)
def _policy(
    spec: DisruptionSpec,
    annotation: str | None,
    template_expiry: str | None,
    static: bool,
    extended: bool,
    defaults: tuple[tuple[str, str | float], ...],
) -> DisruptionPolicy:
    written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(spec))
    if not extended:
        return _karpenter_policy(written, template_expiry, static)
    reading = _Reading(static=static)
    given = dict(defaults)
    reading.add_layer(given, "settings.poolDefaults", "settings")
    own = {key: value for key, value in written.items() if key not in given or value != FILLED_IN.get(key)}
    reading.add_layer(own, _SPEC_PATH, "spec")
    if annotation is not None:
        try:
            reading.add_layer(read_annotation(annotation), _ANNOTATION_PATH, "annotation")
        except InputError as problem:
            why = f"{_ANNOTATION_PATH} {problem}; nothing is disrupted until it is mended"
            return _closed(why, static, "annotation")
    return reading.policy(template_expiry)


def _closed(problem: str, static: bool, origin: str) -> DisruptionPolicy:
    """Build the policy that allows nothing."""
    return DisruptionPolicy(
        consolidate_after=None,
        expire_after=None,
        expire_after_set=True,
        budgets=(Budget(index=0, nodes="0", problem=problem),),
        static=static,
        origins=dict.fromkeys((*FOR_CONSOLIDATION, "expireAfter", "budgets"), origin),
        problems=(problem,),
        closed=problem,
    )


class _Value(NamedTuple):
    """A value that could be read; `read` is None for Never."""

    read: Any


class _Reading(msgspec.Struct):
    """Reads one pool's policy: the value and the origin of each field, and the problems found."""

    static: bool
    values: dict[str, tuple[Any, str]] = msgspec.field(default_factory=dict)
    origins: dict[str, str] = msgspec.field(default_factory=dict)
    problems: list[str] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    closed: str = ""
    unreadable: list[str] = msgspec.field(default_factory=list)

    def add_layer(self, layer: Mapping[str, Any], path: str, origin: str) -> None:
        """Put a layer over those below; each of its keys wins."""
        for key, value in layer.items():
            if key not in DISRUPTION.fields:
                self.warnings.append(f"{path}.{key} is not a field of the policy and was ignored")
            elif value is not None:
                self.values[key] = (value, f"{path}.{key}")
                self.origins[key] = origin

    def policy(self, template_expiry: str | None) -> DisruptionPolicy:
        """Read every field."""
        for key in DISRUPTION.fields:
            self.origins.setdefault(key, "default")
        found = self._simple_fields()
        expire_after, expire_set = self._expiry(template_expiry)
        budgets = self._budgets()
        if found.get("restart_price") is not None and self._is_filled_in("consolidationSavingsThreshold"):
            found["savings_threshold"] = 0  # nobody asked for it, and the restarts have a price of their own
        if self.closed:
            found["consolidate_after"] = None
        return DisruptionPolicy(
            **found,
            expire_after=expire_after,
            expire_after_set=expire_set,
            budgets=budgets,
            windows=self._windows(),
            health=self._health(),
            repair=self._repair(),
            static=self.static,
            origins=dict(sorted(self.origins.items())),
            problems=tuple(self.problems),
            closed=self.closed,
            unreadable=tuple(self.unreadable),
            warnings=tuple(self.warnings),
        )

    def _simple_fields(self) -> dict[str, Any]:
        """Read every field that the table alone describes; those that are absent or unreadable keep their default."""
        found = {}
        for field in FIELDS:
            if field.for_consolidation and self.static:
                self.origins[field.name] = "default"  # ignored there (docs/rules.md#policy)
            elif field.attribute and (value := self._value(field.name)) is not None:
                found[field.attribute] = value.read
        return found

    def _is_filled_in(self, key: str) -> bool:
        """Return whether a field was not set by anybody: it is absent, or in the spec as the CRD fills it in."""
        origin = self.origins[key]
        return origin == "default" or (origin == "spec" and self.values[key][0] == FILLED_IN.get(key))

    def _value(self, key: str) -> "_Value | None":
        """Return a field's value if it is set and readable; otherwise report it and close what it controls."""
        if key not in self.values:
            return None
        field = BY_NAME[key]
        value, path = self.values[key]
        wrong = [finding.sentence() for finding in check(DISRUPTION.fields[key], value, path)]
        if not wrong and field.form is not None:
            try:
                return _Value(field.form.read(value))
            except ValueError as problem:
                wrong = [f"{path}: {problem}"]
        said = [f"{text}; {field.consequence}" for text in wrong]
        self.problems += said
        self.unreadable.append(key)
        if field.closes_consolidation:
            self.closed = self.closed or said[0]
        return None

    def _expiry(self, template_expiry: str | None) -> tuple[int | None, bool]:
        hard = template_length(template_expiry)
        if "expireAfter" not in self.values:
            self.origins["expireAfter"] = "default" if template_expiry is None else "template"
            return hard, False
        read = self._value("expireAfter")
        graceful = None if read is None else read.read
        if graceful is not None and hard is not None and graceful >= hard:
            value, path = self.values["expireAfter"]
            self.warnings.append(
                f"{path} ({shown(value)}) is not before the template's expireAfter "
                f"({shown(template_expiry or '720h')}), at which Karpenter removes nodes forcefully"
            )
        return graceful, True

    def _budgets(self) -> tuple[Budget, ...]:
        if "budgets" not in self.values:
            return (read_budget({}, 0, ""),)
        written, path = self.values["budgets"]
        if not isinstance(written, (list, tuple)):
            problem = f"{path} is {shown(written)} and must be a list; nothing is disrupted until it is mended"
            self.problems.append(problem)
            return (Budget(index=0, nodes="0", problem=problem),)
        if len(written) > READ_MAX:
            problem = f"{path} has {len(written)} entries and may have at most {LISTED_MAX}; it allows nothing"
            self.problems.append(problem)
            return (Budget(index=0, nodes="0", problem=problem),)
        if len(written) > LISTED_MAX:
            problem = f"{path} has {len(written)} entries and may have at most {LISTED_MAX}; all of them were applied"
            self.problems.append(problem)
        return tuple(self._budget(entry, index, f"{path}[{index}]") for index, entry in enumerate(written))

    def _entries(self, key: str) -> tuple[list[Any], str] | None:
        """Return the entries of a list of controls and its path; None if it is absent."""
        if key not in self.values:
            return None
        written, path = self.values[key]
        if isinstance(written, (list, tuple)):
            if len(written) > LISTED_MAX:
                self.problems.append(f"{path} has {len(written)} entries and may have at most {LISTED_MAX}")
            return [None] if len(written) > READ_MAX else list(written), path
        self.problems.append(f"{path} is {shown(written)} and must be a list")
        return [written], path

    def _windows(self) -> tuple[AllowWindow, ...]:
        found = self._entries("windows")
        if found is None:
            return ()
        windows = []
        for index, written in enumerate(found[0]):
            entry, findings = read_window(written, index, f"{found[1]}[{index}]")
            self._note(findings, "its reasons stay closed until it is mended")
            windows.append(entry)
        return tuple(windows)

    def _health(self) -> Health | None:
        if "health" not in self.values:
            return None
        written, path = self.values["health"]
        health, findings = read_health(written, path)
        self._note(findings, "nothing is disrupted voluntarily until it is mended")
        return health

    def _repair(self) -> tuple[RepairRule, ...]:
        found = self._entries("repair")
        if found is None:
            return ()
        rules = []
        for index, written in enumerate(found[0]):
            rule, findings = read_repair(written, index, f"{found[1]}[{index}]")
            self._note(findings, "nothing is repaired by it until it is mended")
            if rule is not None:
                rules.append(rule)
        return tuple(rules)

    def _note(self, findings: Iterable[Finding], consequence: str) -> None:
        for finding in findings:
            if finding.severity is Severity.ERROR:
                self.problems.append(f"{finding.sentence()}; {consequence}")
            else:
                self.warnings.append(finding.sentence())

    def _budget(self, written: Any, index: int, path: str) -> Budget:
        normal, remark = with_text_nodes(written, path)
        findings = list(budget_findings(normal, path))
        self.warnings += [
            finding.sentence()
            for finding in (*((remark,) if remark else ()), *findings)
            if finding.severity is Severity.WARNING
        ]
        errors = [finding.sentence() for finding in findings if finding.severity is Severity.ERROR]
        if not errors:
            return read_budget(normal, index, path)
        self.problems += [f"{text}; this budget allows nothing until it is mended" for text in errors]
        return broken_budget(normal, index, "; ".join(errors))


def template_length(text: str | None) -> int | None:
    """Read the template's expireAfter, at which Karpenter removes nodes forcefully."""
    if text is None:
        return _TEMPLATE_DEFAULT
    try:
        return parse_nillable(text)
    except ValueError:
        return _TEMPLATE_DEFAULT  # the API server refuses it; Karpenter would not start with it


def read_budget(written: Mapping[str, Any], index: int, path: str) -> Budget:
    """Read a budget that has no errors."""
    nodes = written.get("nodes", DEFAULT_NODES)
    schedule, duration = written.get("schedule"), written.get("duration")
    length = 0 if duration is None else parse_simple(duration, "smh")
    reasons = tuple(Reason(word) for word in written.get("reasons") or ())
    return Budget(
        index=index,
        nodes=nodes,
        amount=min(int(nodes.removesuffix("%")), AMOUNT_MAX),
        is_percent=nodes.endswith("%"),
        reasons=reasons or None,  # an empty list counts as absent: all reasons
        window=None if schedule is None else window(schedule, length),
        schedule=schedule,
        duration=duration,
        topology_key=written.get("topologyKey", ""),
        sequential=written.get("sequential", False),
        **{
            part.attribute: part.form.read(written[part.name])
            for part in BUDGET_FIELDS
            if part.form is not None and written.get(part.name) is not None
        },
    )


def broken_budget(written: Any, index: int, problem: str) -> Budget:
    """Build the stand-in for a broken budget: it allows 0 for its readable reasons, or for all."""
    fields: Mapping[str, Any] = written if isinstance(written, dict) else {}
    return Budget(
        index=index,
        nodes=str(fields.get("nodes", DEFAULT_NODES)),
        reasons=readable_reasons(fields.get("reasons")),
        schedule=_text(fields.get("schedule")),
        duration=_text(fields.get("duration")),
        problem=problem,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _karpenter_policy(written: Mapping[str, Any], template_expiry: str | None, static: bool) -> DisruptionPolicy:
    """Read the policy as Karpenter v1.15 does: only its fields, its defaults, and no graceful expiry."""
    problems: list[str] = []
    budgets = karpenter_budgets(written.get("budgets"), problems)
    after: int | None = 0
    try:
        if (text := written.get("consolidateAfter")) is not None:
            after = parse_nillable(text if isinstance(text, str) else shown(text))
    except ValueError as problem:
        after = None
        problems.append(f"{_SPEC_PATH}.consolidateAfter: {problem}")
    word = written.get("consolidationPolicy", "WhenEmptyOrUnderutilized")
    if word not in {kind.value for kind in ConsolidationPolicy} | {"WhenUnderutilized"}:
        word, after = "WhenEmpty", None
        problems.append(f"{_SPEC_PATH}.consolidationPolicy is none that Karpenter knows")
    origins = {
        key: "spec" if key in written else "default" for key in ("consolidationPolicy", "consolidateAfter", "budgets")
    }
    origins["expireAfter"] = "default" if template_expiry is None else "template"
    return DisruptionPolicy(
        consolidation_policy=consolidation_policy(word),
        consolidate_after=after,
        expire_after=template_length(template_expiry),
        savings_threshold=0,
        budgets=budgets,
        static=static,
        origins=origins,
        problems=tuple(problems),
    )
