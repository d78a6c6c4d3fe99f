"""The history of a run: each machine's life and fate, each pod's stays, each command.

Listens beside the ledger, decides nothing, changes nothing, and costs a few list appends per pod. `Timeline` is a plain
value in columns, so that it pickles fast and fits a page; `sim.pages` makes the document of a page from it. Times are
seconds since the measured part began; what was there before has negative ones.
"""

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from dovetail.lifecycle.commands.records import decode_record
from dovetail.lifecycle.messages import Instruction, TaintNode, UntaintNode
from dovetail.model import names
from dovetail.model.command import REASON_OF, Command
from dovetail.model.money import Money
from dovetail.model.objects import Pod
from dovetail.scheduling.pods.pod import is_terminal
from dovetail.sim.world.clock import SECOND
from dovetail.sim.world.cloud import Instance
from dovetail.sim.world.host import Host
from dovetail.sim.world.steps import MOVES
from dovetail.sim.world.store import Change
from dovetail.sim.world.world import World

if TYPE_CHECKING:
    Ints = array[int]
    Floats = array[float]
else:  # can't be subscripted before Python 3.12, and results are read back by their annotations (`sim.kept_runs`)
    Ints = Floats = array

STAYS: Final = -1.0
"""The end of what had not ended when the run was over."""
OUTSIDE_MAX: Final = 500
"""How many events from outside are kept; scaling is not among them, pods show it."""


@dataclass(slots=True, kw_only=True)
class MachineLife:
    """One machine: what it was, when it ran, and what became of it.

    `leaving` is when it was first marked to go; `command` the place in `Timeline.commands` of what took it, or -1.
    `fate` is `kept`, `cost`, `drifted`, `expired`, `empty`, `unhealthy`, `interrupted`, `died` or `removed`.
    """

    name: str
    pool: str
    zone: str
    type: str
    capacity_type: str
    price: Money
    cpu: int
    memory: int
    started: float
    ended: float = STAYS
    leaving: float = STAYS
    fate: str = "kept"
    command: int = -1


@dataclass(slots=True, kw_only=True)
class Taken:
    """One command that was begun: what it took and gave, why, and how it ended (`done`, `undone` or `under way`)."""

    id: str
    by: str
    at: float
    action: str
    reason: str
    nodes: tuple[str, ...]
    replacements: tuple[str, ...]
    moves: tuple[tuple[str, int], ...] = ()
    pods: int = 0
    savings: Money = 0
    required: Money = 0
    disruption_cost: float = 0.0
    ended: float = STAYS
    outcome: str = "under way"


@dataclass(slots=True, kw_only=True)
class Stays:
    """Pods, in columns: which workload, on which machine (-1: none yet), since when, until when, moved or not.

    `created` is when the pod came to be: from then until `began` it waited for a node.
    """

    workload: Ints = field(default_factory=lambda: array("l"))
    machine: Ints = field(default_factory=lambda: array("l"))
    created: Floats = field(default_factory=lambda: array("d"))
    began: Floats = field(default_factory=lambda: array("d"))
    ended: Floats = field(default_factory=lambda: array("d"))
    moved: Ints = field(default_factory=lambda: array("b"))

    def __len__(self) -> int:
        return len(self.workload)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadShape:
    """A workload as the page draws it: its name and what one of its pods asks for."""

    name: str
    cpu: int
    memory: int
    daemon: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A whole run."""

    machines: tuple[MachineLife, ...] = ()
    workloads: tuple[WorkloadShape, ...] = ()
    stays: Stays = field(default_factory=Stays)
    commands: tuple[Taken, ...] = ()
    outside: tuple[tuple[float, str], ...] = ()


class Recorder:
    """Keeps a timeline while a world runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._began = 0
        self._machines: list[MachineLife] = []
        self._place: dict[str, int] = {}
        self._lost: dict[str, str] = {}
        self._workloads: dict[tuple[str, int, int, bool], int] = {}
        self._stays = Stays()
        self._stay_of: dict[str, int] = {}
        self._commands: list[Taken] = []
        self._command_of: dict[str, int] = {}
        self._outside: list[tuple[float, str]] = []
        for change in world.store.history():
            (self._on_pod_change if change.kind == "Pod" else self._on_claim_change)(change)
        world.store.listen_to_pods(self._on_pod_change, MOVES)
        world.store.listen(self._on_claim_change, "NodeClaim")
        world.on_evicted(self._moved)
        world.on_forced(self._moved)
        world.on_gone(self._gone)
        world.on_lost(self._lost.__setitem__)
        world.on_outside(self._happened)

    def follow(self, host: Host) -> None:
        """Record what this engine begins and undoes."""
        host.on_instruction.append(self._instruction)

    def begin(self) -> None:
        """Count time from now on."""
        self._began = self.world.now

    # ------------------------------------------------------------ listening

    def _at(self) -> float:
        return self.world.clock.now / SECOND

    def _on_claim_change(self, change: Change) -> None:
        """Note a machine that was launched or marked to go."""
        if change.new is not None:
            place = self._place.get(change.key)
            if place is None:
                instance = self.world.cloud.instances.get(change.key)
                if instance is not None:
                    self._born(instance, change.new.metadata.labels.get(names.NODEPOOL, ""))
            elif change.new.metadata.deletion_timestamp is not None and self._machines[place].leaving == STAYS:
                self._machines[place].leaving = self._at()

    def _happened(self, what: str) -> None:
        if len(self._outside) < OUTSIDE_MAX and " scaled to " not in what:
            self._outside.append((self._at(), what))

    def _on_pod_change(self, change: Change) -> None:
        """Note a pod that came, was bound or ended."""
        key, pod = change.key, cast("Pod | None", change.new)
        stay = self._stay_of.get(key)
        if pod is None or is_terminal(pod):
            if stay is not None:
                self._stays.ended[stay] = self._at()
                del self._stay_of[key]
            return
        columns = self._stays
        if stay is None:
            stay = self._stay_of[key] = len(columns.workload)
            columns.workload.append(self._workload(key, pod))
            columns.machine.append(-1)
            columns.created.append(self._at())
            columns.began.append(STAYS)
            columns.ended.append(STAYS)
            columns.moved.append(0)
        node = pod.spec.node_name
        if node and columns.machine[stay] < 0:
            columns.machine[stay] = self._place.get(self.world.store.claim_of.get(node, node), -1)
            columns.began[stay] = self._at()

    def _workload(self, key: str, pod: Pod) -> int:
        shape = self.world.shapes.of(key, pod)
        owner = pod.metadata.name
        for entry in pod.metadata.owner_references:
            if entry.name:
                owner = entry.name
                break
        what = (owner, shape.requests.get("cpu", 0), shape.requests.get("memory", 0), shape.daemon)
        return self._workloads.setdefault(what, len(self._workloads))

    def _born(self, instance: Instance, pool: str) -> None:
        room = instance.kind.allocatable()
        self._place[instance.claim] = len(self._machines)
        self._machines.append(
            MachineLife(
                name=instance.claim,
                pool=pool,
                zone=instance.zone,
                type=instance.kind.name,
                capacity_type=instance.capacity_type,
                price=self.world.cloud.price_of(instance.offering),
                cpu=room.get("cpu", 0),
                memory=room.get("memory", 0),
                started=instance.started / SECOND,
            )
        )

    def _gone(self, instance: Instance) -> None:
        place = self._place.get(instance.claim)
        if place is None:
            return
        machine = self._machines[place]
        machine.ended = self._at()
        lost = self._lost.get(instance.claim)
        if lost is not None:
            machine.fate = lost
        elif machine.command >= 0:
            machine.fate = _FATES.get(self._commands[machine.command].reason, "cost")
        else:
            machine.fate = "removed"
        self._settle(machine.command)

    def _settle(self, command: int) -> None:
        """End a command once all its machines are gone."""
        if command < 0:
            return
        taken = self._commands[command]
        places = [self._place.get(name) for name in taken.nodes]
        if all(place is None or self._machines[place].ended != STAYS for place in places):
            taken.ended, taken.outcome = self._at(), "done"

    def _moved(self, key: str, pod: Pod) -> None:
        stay = self._stay_of.get(key)
        if stay is not None and not self.world.shapes.of(key, pod).daemon:
            self._stays.moved[stay] = 1

    def _instruction(self, host: Host, asked: Instruction) -> None:
        if isinstance(asked, TaintNode):
            self._taint(host, asked)
        elif isinstance(asked, UntaintNode):
            self._untaint(asked)

    def _taint(self, host: Host, asked: TaintNode) -> None:
        command = self._command_of.get(asked.command_id)
        if command is None:
            record = decode_record(asked.record)
            if record is None:
                return
            command = self._command_of[asked.command_id] = len(self._commands)
            nodes = tuple(entry.claim for entry in record.nodes)
            decided = next((run.command for run in host.engine.runs if run.id == asked.command_id), None)
            taken = Taken(
                id=asked.command_id,
                by=record.by,
                at=self._at(),
                action=record.action.value,
                reason=REASON_OF[record.method].value,
                nodes=nodes,
                replacements=record.replacements,
            )
            self._commands.append(taken if decided is None else _with_evidence(taken, decided))
        machine = self._machine_of(asked.node)
        if machine is not None and machine.ended == STAYS:
            machine.command = command
            if machine.leaving == STAYS:
                machine.leaving = self._at()

    def _untaint(self, asked: UntaintNode) -> None:
        command = self._command_of.get(asked.command_id)
        machine = self._machine_of(asked.node)
        if command is None or machine is None or machine.command != command or machine.ended != STAYS:
            return
        machine.command, machine.leaving = -1, STAYS
        taken = self._commands[command]
        if taken.outcome == "under way":
            taken.ended, taken.outcome = self._at(), "undone"

    def _machine_of(self, node: str) -> MachineLife | None:
        place = self._place.get(self.world.store.claim_of.get(node, node))
        return None if place is None else self._machines[place]

    # ------------------------------------------------------------ the result

    def timeline(self) -> Timeline:
        """Return what was recorded, counted from `begin`; pods and machines that ended before it are left out."""
        shift = self._began / SECOND

        def moved(when: float) -> float:
            if when <= shift:
                return STAYS if when == STAYS else 0.0
            return round(when - shift, 1)

        places: dict[int, int] = {}
        machines: list[MachineLife] = []
        for place, machine in enumerate(self._machines):
            if machine.ended != STAYS and machine.ended <= shift:
                continue
            places[place] = len(machines)
            machine.started = round(machine.started - shift, 1)
            machine.ended, machine.leaving = moved(machine.ended), moved(machine.leaving)
            machines.append(machine)
        for taken in self._commands:
            taken.at, taken.ended = moved(taken.at), moved(taken.ended)
        stays = self._stays
        rows = [row for row, ended in enumerate(stays.ended) if ended == STAYS or ended > shift]
        kept = Stays(
            workload=array("l", [stays.workload[row] for row in rows]),
            machine=array("l", [places.get(stays.machine[row], -1) for row in rows]),
            created=array("d", [moved(stays.created[row]) for row in rows]),
            began=array("d", [moved(stays.began[row]) for row in rows]),
            ended=array("d", [moved(stays.ended[row]) for row in rows]),
            moved=array("b", [stays.moved[row] for row in rows]),
        )
        return Timeline(
            machines=tuple(machines),
            workloads=tuple(
                WorkloadShape(name=name, cpu=cpu, memory=memory, daemon=daemon)
                for name, cpu, memory, daemon in self._workloads
            ),
            stays=kept,
            commands=tuple(self._commands),
            outside=tuple((moved(at), what) for at, what in self._outside if at >= shift),
        )


_FATES: Final = {
    "Empty": "empty",
    "Expired": "expired",
    "Drifted": "drifted",
    "Underutilized": "cost",
    "Unhealthy": "unhealthy",
}


def _with_evidence(taken: Taken, command: Command) -> Taken:
    taken.moves = tuple((entry.node, len(entry.pods)) for entry in command.placements)
    taken.pods = command.pods
    taken.savings, taken.required = command.savings, command.required_savings
    taken.disruption_cost = command.disruption_cost
    return taken
