"""What really happened in a recording, as the result of a run: the pages show it like any simulation.

Machines, stays of pods and commands come from the recording alone; nothing is simulated. Karpenter's commands are on no
object: claims of one reason that began to leave within two seconds count as one command. Sits in sim.
"""

from array import array
from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from dovetail.model.catalogue import Catalogue
from dovetail.model.money import Money, parse_money
from dovetail.recordings.lines import BY_POLICY
from dovetail.recordings.read import ClaimLife, ClusterRecording, PodLife, is_load
from dovetail.recordings.regret import SHORT_LIFE, moved_again
from dovetail.scheduling.pods.requests import pod_requests
from dovetail.sim.ledger import ActionMark, LedgerSeries, Life, Result
from dovetail.sim.recorded import Reality
from dovetail.sim.timeline import STAYS, MachineLife, Stays, Taken, Timeline, WorkloadShape

RECORDED: Final = "recorded"
_SAMPLES: Final = 240
_TOGETHER: Final = timedelta(seconds=2)
_FATES: Final = {"Underutilized": "cost", "Empty": "empty", "Drifted": "drifted", "Expired": "expired"}
_DOLLAR: Final = 10**18


def real_result(recording: ClusterRecording, catalogue: Catalogue) -> Result:
    """Return what happened, in the form of a run's result."""
    made = _Timelines(recording, catalogue)
    reality = Reality(recording=recording)
    figures = reality.figures()
    claims = made.claims
    lives = [claim.gone - claim.created for claim in claims if claim.gone is not None and claim.created is not None]
    moved = reality.moved()
    return Result(
        policy=RECORDED,
        seed=0,
        seconds=(recording.ends - recording.begins).total_seconds(),
        nodes_started=sum(claim.created is not None and claim.created > recording.begins for claim in claims),
        nodes_ended=sum(claim.gone is not None for claim in claims),
        actions=made.actions(),
        pods_disrupted=int(figures["podsDisrupted"]),
        pods_disrupted_more_than_once=len(moved_again(recording, moved)),
        node_hours=figures["nodeHours"],
        cost=round(figures["cost"] * _DOLLAR),
        median_node_life_seconds=median(life.total_seconds() for life in lives) if lives else None,
        short_lived_nodes=sum(life < SHORT_LIFE for life in lives),
        pending_pod_seconds=made.pending_seconds(),
        violations=(),
        pods_disrupted_most=0,
        nodes_at_start=reality.nodes_at(recording.begins),
        nodes_at_end=reality.nodes_at(recording.ends - timedelta(seconds=1)),
        moves={},
        commands=tuple(made.marks()),
        lives=tuple(
            Life(
                node=machine.name,
                type=machine.type,
                zone=machine.zone,
                capacity_type=machine.capacity_type,
                started=machine.started,
                ended=None if machine.ended == STAYS else machine.ended,
            )
            for machine in made.machines
        ),
        series=made.series(reality),
        timeline=Timeline(
            machines=tuple(made.machines),
            workloads=tuple(made.workloads()),
            stays=made.stays(),
            commands=tuple(made.commands),
        ),
    )


class _Timelines:
    """Joins claims and pods of a recording into columns."""

    def __init__(self, recording: ClusterRecording, catalogue: Catalogue) -> None:
        self.recording = recording
        self._room = {kind.name: kind.allocatable() for kind in catalogue.instance_types}
        begins = recording.begins
        self.claims = [claim for claim in recording.claims if claim.gone is None or claim.gone > begins]
        self.machines = [self._machine(claim) for claim in self.claims]
        self._place = {claim.node or claim.name: place for place, claim in enumerate(self.claims)}
        self._shapes: dict[tuple[str, int, int, bool], int] = {}
        self.commands = self._commands()

    def _second(self, at: datetime | None) -> float:
        return STAYS if at is None else round((at - self.recording.begins).total_seconds(), 1)

    def _machine(self, claim: ClaimLife) -> MachineLife:
        room = self._room.get(claim.instance_type, {})
        price: Money = parse_money(claim.price) if claim.price is not None else 0
        fate = "kept" if claim.gone is None else _FATES.get(claim.reason, "removed")
        return MachineLife(
            name=claim.node or claim.name,
            pool=claim.node_pool,
            zone=claim.zone,
            type=claim.instance_type,
            capacity_type=claim.capacity_type,
            price=price,
            cpu=room.get("cpu", 0),
            memory=room.get("memory", 0),
            started=self._second(claim.launched or claim.created or self.recording.begins),
            ended=self._second(claim.gone),
            leaving=self._second(claim.deleting),
            fate=fate,
        )

    # ------------------------------------------------------------ commands

    def _commands(self) -> list[Taken]:
        pods: dict[str, int] = {}
        for life in self.recording.pods:
            if is_load(life) and life.why in BY_POLICY:
                pods[life.node] = pods.get(life.node, 0) + 1
        found: list[Taken] = []
        last: datetime | None = None
        leaving = [(claim.deleting, place) for place, claim in enumerate(self.claims) if claim.deleting is not None]
        for at, place in sorted(leaving):
            claim, machine = self.claims[place], self.machines[place]
            if not claim.reason or at < self.recording.begins:
                continue
            together = found and last is not None and at - last <= _TOGETHER and found[-1].reason == claim.reason
            if not together:
                found.append(self._taken(claim.reason, at, len(found)))
            last = at
            taken = found[-1]
            taken.nodes = (*taken.nodes, machine.name)
            taken.pods += pods.get(machine.name, 0)
            taken.ended, taken.outcome = machine.ended, "done" if machine.ended != STAYS else "under way"
            machine.command = len(found) - 1
        return found

    def _taken(self, reason: str, at: datetime, number: int) -> Taken:
        words = {"Underutilized": "Cost", "Unhealthy": "Unhealthy"}
        return Taken(
            id=f"recorded-{number}",
            by=RECORDED,
            at=self._second(at),
            action=f"delete{words.get(reason, reason)}",
            reason=reason,
            nodes=(),
            replacements=(),
        )

    def actions(self) -> dict[str, int]:
        """Return how many commands of each action there were."""
        found: dict[str, int] = {}
        for taken in self.commands:
            found[taken.action] = found.get(taken.action, 0) + 1
        return dict(sorted(found.items()))

    def marks(self) -> list[ActionMark]:
        """Return the commands as the ledger lists them."""
        return [
            ActionMark(
                at=taken.at,
                action=taken.action,
                nodes=taken.nodes,
                replacements=0,
                pods=taken.pods,
                savings=taken.savings / _DOLLAR,
            )
            for taken in self.commands
        ]

    # ------------------------------------------------------------ pods

    def _pods(self) -> Sequence[PodLife]:
        begins = self.recording.begins
        return [life for life in self.recording.pods if life.gone is None or life.gone > begins]

    def _workload(self, life: PodLife) -> int:
        requests = pod_requests(life.pod_class.pod)
        name = life.pod_class.owner[1] or life.owner.partition("/")[2] or life.name
        key = (name, requests.get("cpu", 0), requests.get("memory", 0), not is_load(life))
        return self._shapes.setdefault(key, len(self._shapes))

    def stays(self) -> Stays:
        """Return every pod's stay, in columns."""
        rows = [
            (
                self._workload(life),
                self._place.get(life.node, -1),
                max(0.0, self._second(life.created)),
                STAYS if life.bound is None else max(0.0, self._second(life.bound)),
                self._second(life.finished or life.gone),
                int(is_load(life) and life.why in BY_POLICY),
            )
            for life in self._pods()
        ]
        return Stays(
            workload=array("l", [row[0] for row in rows]),
            machine=array("l", [row[1] for row in rows]),
            created=array("d", [row[2] for row in rows]),
            began=array("d", [row[3] for row in rows]),
            ended=array("d", [row[4] for row in rows]),
            moved=array("b", [row[5] for row in rows]),
        )

    def workloads(self) -> list[WorkloadShape]:
        """Return the workloads that the stays refer to; call it after `stays`."""
        self.stays()
        return [
            WorkloadShape(name=name, cpu=cpu, memory=memory, daemon=daemon)
            for name, cpu, memory, daemon in self._shapes
        ]

    def pending_seconds(self) -> float:
        """Return how long pods waited for a node, all together."""
        total = 0.0
        for life in self._pods():
            if is_load(life):
                begin = max(life.created, self.recording.begins)
                end = min(life.bound or life.gone or self.recording.ends, self.recording.ends)
                total += max(0.0, (end - begin).total_seconds())
        return round(total, 1)

    def series(self, reality: Reality) -> LedgerSeries:
        """Return samples at even steps."""
        length = (self.recording.ends - self.recording.begins).total_seconds()
        step = max(1.0, length / _SAMPLES)
        found = LedgerSeries(step_seconds=step)
        pods = [life for life in self._pods() if is_load(life)]
        ends = sorted(self._second(life.deleting or life.gone) for life in reality.moved())
        second = 0.0
        while second <= length:
            at = self.recording.begins + timedelta(seconds=second)
            there = [life for life in pods if life.is_there(at)]
            found.seconds.append(round(second, 1))
            found.nodes.append(reality.nodes_at(at))
            found.cost_per_hour.append(round(reality.cost_at(at), 4))
            found.pods.append(len(there))
            found.pending.append(sum(life.bound is None or life.bound > at for life in there))
            found.pods_disrupted.append(sum(second - step < end <= second for end in ends))
            found.nodes_disrupted.append(0)
            second += step
        return found
