"""`dovetail whatif`: a captured cluster runs on through a day like its last one, as it is and with a change.

The first column is what the cluster has today: Karpenter's rules in pools that Dovetail does not manage, Dovetail's in
those that it does. All columns share the cluster, the pods that come and go (`scenarios.turnover`) and the seeds. The
answer says how well the first column agrees with what the cluster costs now, and recommends only what was simulated:
`patch` and `settings` together are the changed column. Decides nothing about disruption. Sits in sim;
`cli.simulation.whatif` prints it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import mean
from typing import Any, Final

from dovetail.api.findings import InputError
from dovetail.api.policy_change import check_changes, dovetails_own, patch_of, patches_of
from dovetail.api.settings import TARIFF_KEYS, settings_of
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.money import UNIT
from dovetail.model.policies.managed import managed_pools
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, RECOMMENDED_DISRUPTION, RECOMMENDED_NAME, Settings, Tariff
from dovetail.model.timing.duration import HOUR, MINUTE, SECOND, format_duration
from dovetail.recordings.read import ClusterRecording, is_load
from dovetail.sim.advice import Recommendation, difference_of, recommend
from dovetail.sim.calibration import Calibration, calibrate_rate
from dovetail.sim.compare import cores, run_all
from dovetail.sim.ledger import Interim, Result
from dovetail.sim.means import mean_result
from dovetail.sim.recorded import calibrate_recorded
from dovetail.sim.recorded_bill import recorded_cost
from dovetail.sim.scenarios.captured import cost_per_hour
from dovetail.sim.scenarios.scenario import Policy, Scenario
from dovetail.sim.scenarios.sections import ScenarioFile
from dovetail.sim.scenarios.turnover import arrivals_of
from dovetail.sim.time_left import TimeLeft

BASELINE: Final = "baseline"
CHANGED: Final = "changed"
MIXED: Final = "mixed"
OF_A_MOMENT: Final = ("nominatedNodes", "markedForDeletionNodes")
"""Settings that describe a captured moment: they are over as soon as time goes on."""
SECONDS_PER_NODE_HOUR: Final = 0.03
"""How long a node's hour takes to simulate on an ordinary core, roughly; for the first estimate only.

A cluster with much to consolidate took 0.02 to 0.03 s (1,000 nodes) and 0.1 s (100 nodes), a settled one 0.002 s.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What is asked: a cluster as of `now`, the change, the pools that it is for, how long to run.

    `words`: Dovetail's settings today, as in its settings file; `karpenter`: Karpenter's. `fields` of spec.disruption,
    `changes` of the settings and `manage` (give the pools to Dovetail, or back to Karpenter) are the change.
    `recorded`: the recording whose load is replayed from `now` on, instead of a day like the last.
    """

    cluster: Cluster
    catalogue: Catalogue
    now: datetime
    length: int
    words: Mapping[str, Any] = field(default_factory=dict)
    karpenter: Settings = KARPENTER_1_15
    fields: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    manage: bool | None = None
    pools: tuple[str, ...] = ()
    seed: int = 0
    seeds: int = 3
    recorded: ClusterRecording | None = None

    @property
    def every(self) -> tuple[str, ...]:
        """Return all pools."""
        return tuple(pool.metadata.name for pool in self.cluster.node_pools)

    @property
    def chosen(self) -> tuple[str, ...]:
        """Return the pools that the change is for."""
        return tuple(name for name in self.every if not self.pools or name in self.pools)

    @property
    def end(self) -> datetime:
        """Return when the replay ends."""
        return self.now + timedelta(microseconds=self.length // 1000)

    # ------------------------------------------------------------ what is in force, and what would be

    @property
    def settings(self) -> Settings:
        """Return Dovetail's settings today."""
        return settings_of(_lasting(self.words), DOVETAIL)

    @property
    def tariff(self) -> Tariff:
        """Return what machines really cost, in every column."""
        return self.settings.tariff or self.karpenter.tariff

    @property
    def managed(self) -> tuple[str, ...]:
        """Return the pools that Dovetail manages today."""
        return managed_pools(self.cluster.node_pools, self.settings)

    @property
    def today(self) -> str:
        """Return whose rules the cluster has today: a profile's name, or `mixed`."""
        managed = self.managed
        if not managed:
            return self.karpenter.profile.value
        return DOVETAIL.profile.value if set(managed) >= set(self.every) else MIXED

    @property
    def new_words(self) -> dict[str, Any]:
        """Return the settings file of the changed column."""
        words = {**_lasting(self.words), **self.changes}
        if words.get("pools") and self.manage is False:
            words["pools"] = [name for name in words["pools"] if name not in self.chosen]
        if not self.new_managed:
            return {key: value for key, value in words.items() if key in OF_KARPENTER}
        return words

    @property
    def new_fields(self) -> dict[str, Any]:
        """Return the fields of spec.disruption that the changed column has otherwise."""
        if self.changes.get("base") == RECOMMENDED_NAME:
            return {**RECOMMENDED_DISRUPTION, **self.fields}
        return dict(self.fields)

    @property
    def new_managed(self) -> tuple[str, ...]:
        """Return the pools that Dovetail manages in the changed column.

        Fields and settings that only Dovetail reads need Dovetail; any other change leaves each pool to whom it has.
        """
        if self.manage is False:
            return tuple(name for name in self.managed if name not in self.chosen)
        needs = self.manage or self.needs
        return tuple(name for name in self.every if name in self.managed or (needs and name in self.chosen))

    @property
    def needs(self) -> tuple[str, ...]:
        """Return what in the change only Dovetail reads."""
        words = {**({} if self.managed else _lasting(self.words)), **self.changes}
        return (*dovetails_own(self.fields), *(key for key in words if key not in OF_KARPENTER))

    @property
    def patch(self) -> dict[str, Any]:
        """Return the merge patch of the pools that the change is for."""
        return patch_of(self._changed_pools(), self.new_fields, manage=self._relabelled())

    @property
    def patches(self) -> dict[str, dict[str, Any]]:
        """Return each pool's own patch, by name; they differ where pools keep their policy in an annotation."""
        return patches_of(self._changed_pools(), self.new_fields, manage=self._relabelled())

    def _changed_pools(self) -> list[Any]:
        return [pool for pool in self.cluster.node_pools if pool.metadata.name in self.chosen]

    def _relabelled(self) -> bool | None:
        """Return whether the patch gives pools to Dovetail (True) or back to Karpenter (False); None: neither."""
        before, after = set(self.managed), set(self.new_managed)
        return True if after - before else False if before - after else None

    # ------------------------------------------------------------ the columns

    def columns(self) -> tuple[Policy, Policy, Policy]:
        """Return the policies: as it is today, Karpenter's own rules everywhere, and the change."""
        return (
            self._policy(BASELINE, self.managed, self.words, {}),
            self._policy(self.karpenter.profile.value, (), {}, {}),
            self._policy(CHANGED, self.new_managed, self.new_words, self.new_fields),
        )

    def _policy(
        self, name: str, managed: tuple[str, ...], words: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> Policy:
        found = Policy(
            name=name,
            settings=self.karpenter,
            disruption=dict(fields),
            pools=self.chosen,
            karpenter=self.karpenter,
        )
        if not managed:
            return found
        settings = replace(settings_of(_lasting(words), DOVETAIL), pools=())  # the label says which are managed
        return replace(found, settings=settings, managed=managed, beside_karpenter=managed != self.every)

    def scenario(self) -> Scenario:
        """Return the scenario that all columns run."""
        length = format_duration(self.length)
        return Scenario(
            name="whatif",
            about="",
            source="whatif",
            start=self.now,
            until=self.length,
            warm_up=0,
            file=ScenarioFile(name="whatif", until=length, catalogue=(), policies={}),
            policies=self.columns(),
            turnover=self.length if self.recorded is None else None,
            recorded=self.recorded,
            captured=self.cluster,
            catalogue=self.catalogue,
            figures_only=True,
            tariff=self.tariff,
        )

    @property
    def arrivals(self) -> int:
        """Return how many pods come."""
        if self.recorded is not None:
            return sum(life.created > self.now and is_load(life) for life in self.recorded.pods)
        return len(arrivals_of(self.cluster, self.now, self.length))


OF_KARPENTER: Final = ("karpenter", "preferencePolicy", "minValuesPolicy", *TARIFF_KEYS)
"""Settings that describe Karpenter itself, and what machines really cost; they count without Dovetail, too."""


def _lasting(words: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in words.items() if key not in OF_A_MOMENT}


def karpenter_of(settings: Settings) -> Settings:
    """Return Karpenter's own settings, as far as Dovetail's or a profile of Karpenter's name them."""
    if settings.rules.plays_karpenter:
        return replace(settings, nominated_nodes=(), marked_for_deletion_nodes=(), pools=())
    found = replace(
        KARPENTER_1_15,
        karpenter=settings.karpenter,
        preference_policy=settings.preference_policy,
        min_values_policy=settings.min_values_policy,
    )
    gates = {gate.value: on for gate, on in settings.karpenter.feature_gates}
    spot = gates.get("SpotToSpotConsolidation", found.spot_to_spot_consolidation)
    return replace(found, spot_to_spot_consolidation=spot)


# ---------------------------------------------------------------- the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Trio:
    """The three columns on one seed."""

    seed: int
    baseline: Result
    karpenter: Result
    changed: Result

    def columns(self) -> Iterator[tuple[str, Result]]:
        """Yield each column with its key in the JSON."""
        yield from (("baseline", self.baseline), ("karpenter", self.karpenter), ("changed", self.changed))


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """The columns on every seed, what they say about the cluster as it is, and what to do."""

    asked: WhatIf
    trios: tuple[Trio, ...]
    calibration: Calibration
    recommendation: Recommendation

    @property
    def first(self) -> Trio:
        """Return the columns on the first seed, for plots."""
        return self.trios[0]

    def means(self) -> dict[str, dict[str, Any]]:
        """Return the RESULT of each column: means over the seeds, with their standard errors."""
        return {key: mean_result([dict(trio.columns())[key] for trio in self.trios]) for key, _ in self.first.columns()}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of the contract."""
        asked, recommendation = self.asked, self.recommendation
        found = {
            "today": asked.today,
            "calibration": self.calibration.to_dict(),
            **self.means(),
            "recommendation": {"apply": recommendation.apply, "why": recommendation.why},
            "patch": asked.patch,
            "settings": asked.new_words,
            "pools": list(asked.chosen),
            "managed": {"today": list(asked.managed), "changed": list(asked.new_managed)},
            "replayed": {
                "from": asked.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "until": asked.end.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "arrivals": asked.arrivals,
            },
            "seeds": len(self.trios),
            "runs": [
                {"seed": trio.seed, **{key: result.to_dict() for key, result in trio.columns()}} for trio in self.trios
            ],
            "scatter": difference_of(self.pairs()).to_dict(),
        }
        patches = asked.patches
        if any(patch != asked.patch for patch in patches.values()):
            found["patches"] = patches
        return found

    def pairs(self) -> list[tuple[Result, Result]]:
        """Return what is compared: today's policy and the changed one, seed by seed."""
        return [(trio.baseline, trio.changed) for trio in self.trios]


def check(asked: WhatIf) -> None:
    """Raise for a change that no pool can take."""
    if not asked.cluster.node_pools:
        raise InputError("the input has no NodePool; capture it with `dovetail snapshot`, or kubectl get nodepools ...")
    settings = settings_of(asked.new_words, DOVETAIL)
    for pool in asked.cluster.node_pools:
        if pool.metadata.name in asked.chosen:
            check_changes(pool, asked.new_fields, settings)


def estimate_seconds(asked: WhatIf, cores: int) -> float:
    """Return roughly how long the runs take on so many cores."""
    runs = len(_different(asked.columns())) * asked.seeds
    rounds = -(-runs // max(1, min(cores, runs)))
    return 2 + rounds * asked.length / HOUR * max(10, len(asked.cluster.nodes)) * SECONDS_PER_NODE_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """The first seed's columns as far as they are: today's policy and the changed one, after the same time."""

    asked: WhatIf
    baseline: Interim
    changed: Interim

    def sentence(self) -> str:
        """Return the figures so far in one sentence."""
        unit = MINUTE if self.changed.seconds >= 600 else SECOND
        length = format_duration(round(self.changed.seconds * SECOND / unit) * unit)
        today, changed = (
            f"${run.cost / UNIT:,.2f} and {run.pods_disrupted:,} restarts, then ${run.rate / UNIT:,.2f}/h"
            for run in (self.baseline, self.changed)
        )
        whole = format_duration(self.asked.length)
        return f"after {length} of {whole}, first seed: today's policy {today}; changed {changed}"


class RunWatcher:
    """Follows the runs of a what-if: what they have found so far, and how long they will still take.

    `clock` returns seconds; `progress` hears the share that is done and the seconds left (None: not known yet).
    """

    def __init__(
        self,
        clock: Callable[[], float],
        progress: Callable[[float, float | None], None],
        looked: Callable[[FirstLook], None],
    ) -> None:
        self._clock, self._progress, self._looked = clock, progress, looked
        self._began = clock()
        self._shares: list[float] = []
        self._found: dict[tuple[int, int], Interim] = {}

    def begin(self, asked: WhatIf, kinds: Sequence[str], workers: int) -> None:
        """Start to follow runs: `kinds` are the columns of each, those of the first seed first."""
        self._asked, self._shares, self._began = asked, [0.0] * len(kinds), self._clock()
        self._looks = (*EARLY_LOOKS, *LOOKS) if len(asked.cluster.nodes) >= LARGE else LOOKS
        self._left = TimeLeft(kinds, workers)
        self._pair = (kinds.index(BASELINE), kinds.index(CHANGED)) if CHANGED in kinds else None

    def heard(self, index: int, share: float, figures: Interim | None) -> None:
        """Take in what a run reports."""
        self._shares[index] = share
        self._left.heard(index, share, self._clock() - self._began)
        self._progress(sum(self._shares) / len(self._shares), self._left.left())
        part = round(1000 * share)
        if figures is None or self._pair is None or index not in self._pair or part not in self._looks:
            return
        self._found[index, part] = figures
        pair = [self._found.get((column, part)) for column in self._pair]
        if pair[0] is not None and pair[1] is not None:
            self._looked(FirstLook(asked=self._asked, baseline=pair[0], changed=pair[1]))


LOOKS: Final = (10, 40, 120, 250, 500)
"""After which thousandths of the time the figures so far are shown; each is one of the simulator's `STEPS`."""
EARLY_LOOKS: Final = (1, 2, 5)
"""And after which in a large cluster, in which the first hundredth may take minutes."""
LARGE: Final = 500
"""How many nodes make a cluster large."""


def what_if(
    asked: WhatIf, watcher: RunWatcher | None = None, workers: int | None = None, *, timeline: bool = False
) -> WhatIfAnswer:
    """Run all columns on all seeds and compare; `timeline`: keep the history of the first seed, for a page."""
    check(asked)
    scenario = asked.scenario()
    policies = _different(scenario.policies)
    seeds = range(asked.seed, asked.seed + asked.seeds)
    tasks = [
        (replace(scenario, figures_only=not timeline or seed != asked.seed), policy, seed, None)
        for seed in seeds
        for policy in policies
    ]
    if watcher is not None:
        watcher.begin(asked, [task[1].name for task in tasks], min(len(tasks), workers or cores()))
    results = iter(run_all(tasks, None, workers, heard=None if watcher is None else watcher.heard))
    trios = tuple(_trio(seed, scenario.policies, {policy.name: next(results) for policy in policies}) for seed in seeds)
    calibration = calibration_of(asked, [trio.baseline for trio in trios])
    return WhatIfAnswer(
        asked=asked,
        trios=trios,
        calibration=calibration,
        recommendation=recommend([(trio.baseline, trio.changed) for trio in trios], calibration),
    )


def _different(columns: Sequence[Policy]) -> list[Policy]:
    """Return the columns without those that are the same as an earlier one."""
    found: list[Policy] = []
    for policy in columns:
        if all(replace(policy, name=known.name) != known for known in found):
            found.append(policy)
    return found


def _trio(seed: int, columns: Sequence[Policy], results: Mapping[str, Result]) -> Trio:
    found: list[Result] = []
    for policy in columns:
        same = next(known for known in columns if replace(policy, name=known.name) == known)
        found.append(replace(results[same.name], policy=policy.name))
    return Trio(seed=seed, baseline=found[0], karpenter=found[1], changed=found[2])


def calibration_of(asked: WhatIf, runs: Sequence[Result]) -> Calibration:
    """Compare the replay of today's policy with reality.

    Of a recording: all of it. Of a capture: what the cluster costs now with the replay's last hour, or last quarter.
    """
    if asked.recorded is not None:
        cost = recorded_cost(asked.recorded, asked.catalogue, asked.tariff)
        return calibrate_recorded(asked.recorded, runs, asked.today, cost)
    real = cost_per_hour(asked.cluster, asked.catalogue, asked.tariff) / UNIT
    ends = []
    for run in runs:
        last = min(3600.0, run.seconds / 4)
        series = run.series
        ends.append(
            mean(
                rate
                for at, rate in zip(series.seconds, series.cost_per_hour, strict=True)
                if at >= run.seconds - last or at == series.seconds[-1]
            )
        )
    return calibrate_rate(real, mean(ends), asked.today)
