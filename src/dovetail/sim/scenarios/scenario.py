"""Scenarios: a cluster, what happens to it and the policies to compare, as short YAML.

Reads and checks a file and gives a `Scenario`, a plain value; `sim.stage` makes a world of it. Whatever is wrong is
said in one sentence with file, line and what to write instead. docs/internals/simulator.md describes the format.
"""

import difflib
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from dovetail.api.findings import InputError
from dovetail.api.reading.yaml_tree import parse_yaml
from dovetail.api.settings import TARIFF_KEYS, settings_of
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.settings import (
    DOVETAIL,
    KARPENTER_1_15,
    PROFILES,
    RECOMMENDED,
    RECOMMENDED_DISRUPTION,
    RECOMMENDED_NAME,
    Profile,
    Settings,
    Tariff,
)
from dovetail.model.timing.duration import DurationError, parse_simple
from dovetail.recordings.read import ClusterRecording
from dovetail.sim.scenarios.scenario_checks import check_scenario
from dovetail.sim.scenarios.sections import ArrivalsSection, PolicySection, ScenarioFile
from dovetail.sim.world.clock import Span


class ScenarioError(InputError):
    """A scenario, policy or trace can't be used; the message is one sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy ready to run.

    `pools`: the pools of a captured cluster that `disruption` is for; none named: all. `managed`: the pools of a
    captured cluster that Dovetail manages; None: all, unless the settings play Karpenter. `karpenter`: the settings of
    the Karpenter beside Dovetail.
    """

    name: str
    settings: Settings
    disruption: dict[str, Any] = field(default_factory=dict)
    beside_karpenter: bool = False
    pools: tuple[str, ...] = ()
    managed: tuple[str, ...] | None = None
    karpenter: Settings = KARPENTER_1_15

    def paying(self, tariff: Tariff | None) -> "Policy":
        """Return the policy with settings that know a tariff, unless they name one of their own."""
        if not tariff:
            return self
        settings = self.settings if self.settings.tariff else self.settings.paying(tariff)
        return replace(self, settings=settings, karpenter=self.karpenter.paying(tariff))

    def manages(self, pool: str) -> bool:
        """Return whether Dovetail manages a pool under this policy."""
        if self.settings.rules.plays_karpenter:
            return False
        return self.managed is None or pool in self.managed


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario ready to be staged; times in nanoseconds.

    `arrivals`: how much of the captured cluster's last hours is replayed, if any; its `start` is the capture's then.
    `captured` and `catalogue`: the captured cluster and its catalogue, where they are known already (`sim.whatif`).
    `recorded`: the recording whose load is replayed from `start` on. `turnover`: how long a stretch of the captured
    cluster's past is repeated from `start` on, if any. `figures_only`: keep no history of single nodes and pods, which
    only pages show. `tariff`: what machines really cost, for every policy alike; None: as each policy's settings say.
    `settle`: how long the controllers have run when the counting begins; `until` counts from then on.
    """

    name: str
    about: str
    source: str
    start: datetime
    until: int
    warm_up: int
    file: ScenarioFile
    policies: tuple[Policy, ...]
    arrivals: int | None = None
    turnover: int | None = None
    captured: Cluster | None = None
    recorded: ClusterRecording | None = None
    catalogue: Catalogue | None = None
    figures_only: bool = False
    tariff: Tariff | None = None
    settle: int = 0

    def policy(self, name: str) -> Policy:
        """Return the policy of that name; raise ScenarioError if the scenario has none."""
        found = next((policy for policy in self.policies if policy.name == name), None)
        if found is None:
            known = ", ".join(policy.name for policy in self.policies)
            raise ScenarioError(f"{self.name} has no policy {name}; write one of: {known}")
        return found

    @property
    def folder(self) -> Path | None:
        """Return where its file is, for files that it names; None for those that come with the package."""
        return None if self.source.startswith("shipped:") else Path(self.source).parent


_YEARS: Final = (1970, 2200)


# ---------------------------------------------------------------- reading


def shipped() -> tuple[str, ...]:
    """Return the names of the scenarios that come with the package."""
    folder = resources.files("dovetail.sim.scenarios").joinpath("library")
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def load_scenario(where: str | Path) -> Scenario:
    """Return a scenario by its shipped name, or from a file."""
    text = str(where)
    if text in shipped():
        data = resources.files("dovetail.sim.scenarios").joinpath("library", f"{text}.yaml").read_text(encoding="utf-8")
        return parse_scenario(data, f"shipped:{text}.yaml")
    path = Path(text)
    if not path.is_file():
        near = difflib.get_close_matches(text, shipped(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"write a file or one of: {', '.join(shipped())}"
        raise ScenarioError(f"{text}: there is no such scenario; {hint}")
    try:
        return parse_scenario(path.read_text(encoding="utf-8"), text)
    except UnicodeDecodeError:
        raise ScenarioError(f"{text}: it is not readable as UTF-8 text; write a YAML file") from None


def parse_scenario(data: str, source: str) -> Scenario:
    """Return a scenario from YAML text; `source` is named in errors."""
    reader = _Reader(data, source)
    wire: ScenarioFile = reader.read(ScenarioFile)
    check_scenario(reader, wire)
    return Scenario(
        name=wire.name,
        about=" ".join(wire.about.split()),
        source=source,
        start=reader.instant(wire.start, "start"),
        until=reader.span(wire.until, "until").low,
        warm_up=reader.span(wire.warm_up, "warmUp").low,
        file=wire,
        policies=tuple(reader.policy(name, section, f"policies.{name}") for name, section in wire.policies.items()),
        arrivals=reader.arrivals(wire),
        tariff=reader.tariff(wire),
    )


def with_trace(scenario: Scenario, file: str) -> Scenario:
    """Return the scenario, replaying another trace."""
    section = scenario.file.trace
    if section is None:
        raise ScenarioError(f"{scenario.source}: it replays no trace; remove --trace, or add a `trace:` section")
    trace = msgspec.structs.replace(section, file=str(Path(file).resolve()))
    return replace(scenario, file=msgspec.structs.replace(scenario.file, trace=trace))


def recommended_policy() -> Policy:
    """Return the policy that the docs recommend to a new user."""
    return Policy(name=RECOMMENDED_NAME, settings=RECOMMENDED, disruption=dict(RECOMMENDED_DISRUPTION))


def load_policy(name: str, where: str | Path) -> Policy:
    """Return a policy from a file of its own, as `--policy NAME=FILE` gives it."""
    path = Path(where)
    try:
        data = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ScenarioError(f"{path}: can't be read; write a YAML file with profile, disruption and settings") from None
    reader = _Reader(data, str(path))
    section: PolicySection = reader.read(PolicySection)
    return reader.policy(name, section, "")


class _Reader:
    """One YAML text, its values, and the line of every path in it."""

    def __init__(self, data: str, source: str) -> None:
        self.source = source
        self.lines: dict[str, int] = {}
        self._seen: dict[int, Any] = {}
        try:
            for _ in parse_yaml(data):  # refuses what is nested too deep, cycles and alias bombs, without recursion
                pass
        except InputError as error:
            line_of = re.match(r"line (\d+)", str(error))
            problem = re.sub(r"^line \d+(, column \d+)? ", "this ", str(error))
            raise ScenarioError(f"{source}:{line_of[1] if line_of else 1}: {problem}; check the indentation") from None
        try:
            node = yaml.compose(data, Loader=yaml.CSafeLoader)
            self.tree = self._plain(node, "") if node is not None else None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark is not None else 1
            problem = str(getattr(error, "problem", None) or "unreadable")
            raise ScenarioError(f"{source}:{line}: this is not YAML ({problem}); check the indentation") from None
        if not isinstance(self.tree, dict):
            raise ScenarioError(f"{source}:1: a map of keys is wanted; begin with `name: ...`")

    def _plain(self, node: Any, path: str) -> Any:
        """Return a node as plain values; what an alias repeats is walked through once."""
        if id(node) not in self._seen:
            self._seen[id(node)] = self._read(node, path)
        return self._seen[id(node)]

    def _read(self, node: Any, path: str) -> Any:
        self.lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            result = {}
            for key_node, value_node in node.value:
                key = str(key_node.value)
                inner = f"{path}.{key}" if path else key
                result[key] = self._plain(value_node, inner)
                self.lines[inner] = key_node.start_mark.line + 1
            return result
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(entry, f"{path}[{index}]") for index, entry in enumerate(node.value)]
        return (
            yaml.CSafeLoader("").construct_object(node)
            if node.tag.endswith((":int", ":float", ":bool", ":null"))
            else (node.value)
        )

    def fail(self, path: str, problem: str) -> ScenarioError:
        """Return an error of one sentence, with the line of the nearest thing in the file."""
        shown = path
        while path and path not in self.lines:
            path = re.sub(r"(\.[^.\[\]]*|\[[^\]]*\]|^[^.\[\]]*)$", "", path)
        return ScenarioError(f"{self.source}:{self.lines.get(path, 1)}: {shown + ': ' if shown else ''}{problem}")

    def read(self, kind: Any) -> Any:
        """Return the tree as a value of that kind."""
        try:
            return msgspec.convert(self.tree, kind, strict=False)
        except msgspec.ValidationError as error:
            raise self._explain(str(error), kind) from None

    def _explain(self, message: str, kind: Any) -> ScenarioError:
        problem, _, place = message.partition(" - at `")
        path = re.sub(r"^key in ", "", place.rstrip("`")).removeprefix("$").removeprefix(".").replace("[...]", "")
        unknown = re.search(r"unknown field `(.+)`", problem)
        if unknown:
            known = _fields_at(kind, path)
            near = difflib.get_close_matches(unknown[1], known, n=1)
            remedy = f"did you mean `{near[0]}`?" if near else f"write one of: {', '.join(known)}"
            inner = f"{path}.{unknown[1]}" if path else unknown[1]
            return self.fail(inner, f"there is no such key; {remedy}")
        missing = re.search(r"missing required field `(.+)`", problem)
        if missing:
            return self.fail(path, f"`{missing[1]}` is missing; write it")
        wanted = re.sub(r"^Expected `(.+)`, got `(.+)`$", r"\2 given; write \1", problem)
        return self.fail(path, wanted.replace("array", "a list").replace("object", "a map"))

    def span(self, text: str, path: str) -> Span:
        """Parse a span: `30s`, or `20s-40s`."""
        low, dash, high = str(text).partition("-")
        try:
            first = parse_simple(low.strip(), "smhd")
            last = parse_simple(high.strip(), "smhd") if dash else first
        except DurationError:
            raise self.fail(
                path, f"{text!r} is not a duration; write 30s, 5m, 2h, or a range such as 20s-40s"
            ) from None
        if last < first:
            raise self.fail(path, f"{text!r} ends before it begins; write the shorter time first")
        return Span(first, last)

    def instant(self, text: str, path: str) -> datetime:
        """Return a date and time."""
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise self.fail(path, f"{text!r} is not a date and time; write 2026-01-05T18:00:00Z") from None
        if not _YEARS[0] <= found.year <= _YEARS[1]:
            raise self.fail(path, f"{text!r} is out of reach; write a year from {_YEARS[0]} to {_YEARS[1]}")
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    def arrivals(self, wire: ScenarioFile) -> int | None:
        """Return how many hours before its capture are replayed; None: none."""
        section = wire.arrivals
        if section is None:
            return None
        if isinstance(section, str):
            section = ArrivalsSection(from_=section)
        if section.from_ != "captured":
            raise self.fail("arrivals", f"{section.from_!r} is nowhere pods come from; write `arrivals: captured`")
        if wire.cluster is None:
            raise self.fail("arrivals", "there is no captured cluster to take them from; write `cluster: FILE` as well")
        if "start" in self.lines:
            raise self.fail("start", "the capture says when it begins; leave `start` out, or `arrivals`")
        window = self.span(section.window, "arrivals.window").low
        if window <= 0:
            raise self.fail("arrivals.window", "nothing comes in no time; write a duration such as 24h")
        if self.span(wire.until, "until").low > window:
            raise self.fail(
                "until", f"{wire.until} is longer than the {section.window} of arrivals; write less, or a longer window"
            )
        return window

    def tariff(self, wire: ScenarioFile) -> Tariff | None:
        """Return what machines really cost; None: no section says."""
        if not wire.prices:
            return None
        wrong = next((key for key in wire.prices if key not in TARIFF_KEYS), None)
        if wrong is not None:
            raise self.fail(f"prices.{wrong}", f"there is no such key; write one of: {', '.join(TARIFF_KEYS)}")
        try:
            return settings_of(wire.prices, DOVETAIL).tariff
        except InputError as error:
            raise self.fail("prices", str(error)) from None

    def policy(self, name: str, section: PolicySection, path: str) -> Policy:
        """Return a policy with its settings read."""
        if section.profile not in {profile.value for profile in Profile}:
            known = ", ".join(profile.value for profile in Profile)
            inner = f"{path}.profile" if path else "profile"
            raise self.fail(inner, f"{section.profile!r} is not a profile; write one of: {known}")
        base = PROFILES[Profile(section.profile)]
        words = {**({"base": section.base} if section.base else {}), **section.settings}
        try:
            settings = settings_of(words, base) if words else base
        except InputError as error:
            raise self.fail(f"{path}.settings" if path else "settings", str(error)) from None
        return Policy(
            name=name,
            settings=settings,
            disruption={**(RECOMMENDED_DISRUPTION if section.base else {}), **section.disruption},
            beside_karpenter=section.beside_karpenter,
        )


def _fields_at(kind: Any, path: str) -> list[str]:
    """Return the keys that may stand at a path, found by walking the structs."""
    found = msgspec.inspect.type_info(kind)
    for part in re.findall(r"[^.\[\]]+", path):
        found = _inner(found, part)
    while not isinstance(found, msgspec.inspect.StructType):
        nested = _unwrap(found)
        if nested is None:
            return []
        found = nested
    return [entry.encode_name for entry in found.fields]


def _inner(found: Any, part: str) -> Any:
    while not isinstance(found, msgspec.inspect.StructType):
        nested = _unwrap(found)
        if nested is None:
            return found
        found = nested
        if part.isdigit() or (
            isinstance(found, msgspec.inspect.StructType) and part not in {f.encode_name for f in found.fields}
        ):
            return found
    for entry in found.fields:
        if entry.encode_name == part:
            return entry.type
    return found


def _unwrap(found: Any) -> Any:
    """Return the type inside a list, a map or an optional."""
    if isinstance(found, msgspec.inspect.UnionType):
        return next(
            (t for t in found.types if _unwrap(t) is not None or isinstance(t, msgspec.inspect.StructType)), None
        )
    if isinstance(found, msgspec.inspect.DictType):
        return found.value_type
    for name in ("item_type",):
        if hasattr(found, name):
            return getattr(found, name)
    return None
