"""Reads a recording: a folder, a .tar.gz of one, or a single file; into lives of pods and claims, and changes.

What can't be read is refused in one sentence. A file that was cut off counts up to its last whole line; the time from
there to the next file is a gap, as is every hour that is missing. Nothing is guessed over a gap: pods and claims that
are there before and after it go on, those that are not end, or begin, at its edges. Sits in `recordings`.
"""

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.api.findings import InputError
from dovetail.model.cluster import Cluster, cluster_of
from dovetail.model.objects import KINDS, AnyObject, Condition, ObjectMeta, Pod, PodStatus
from dovetail.recordings.lines import (
    DECODER,
    DELETED,
    EVICTED,
    VERSION,
    ClaimLine,
    ClassLine,
    ClockLine,
    EndLine,
    GapLine,
    GoneLine,
    HeaderLine,
    Line,
    ObjectLine,
    PodLine,
)
from dovetail.recordings.store import MANIFEST, SUFFIX, files_of

UNSEEN: Final = "unseen"
"""Why something ended of which only the end of a gap shows that it is gone."""
_SEAM: Final = timedelta(seconds=90)
"""Files follow each other within this; a longer time between two is a gap."""
_MAX_FILE_BYTES: Final = 4 << 30
_WITH_NODE: Final = ("DaemonSet", "Node")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedClass:
    """What pods of one owner share."""

    pod: Pod

    @property
    def owner(self) -> tuple[str, str]:
        """Return kind and name of the owner; empty if the pods name it themselves, or there is none."""
        for reference in self.pod.metadata.owner_references:
            return (reference.kind, reference.name)
        return ("", "")


@dataclass(slots=True, kw_only=True)
class PodLife:
    """One pod from its creation to its end. `gone` is None while it runs; `seen` is when the recording first saw it."""

    name: str
    namespace: str
    pod_class: RecordedClass
    owner: str
    created: datetime
    seen: datetime
    node: str = ""
    bound: datetime | None = None
    ready: datetime | None = None
    deleting: datetime | None = None
    finished: datetime | None = None
    gone: datetime | None = None
    why: str = ""

    def pod_at(self, at: datetime, owner_uid: str = "") -> Pod:
        """Return the pod as it was at that time."""
        bound, ready = _past(self.bound, at), _past(self.ready, at)
        conditions = [Condition(type="PodScheduled", status="True", last_transition_time=bound)] if bound else []
        if ready is not None:
            conditions.append(Condition(type="Ready", status="True", last_transition_time=ready))
        ended = _past(self.finished, at)
        phase = ("Failed" if self.why == "failed" else "Succeeded") if ended else "Running" if bound else "Pending"
        shared = self.pod_class.pod
        references = tuple(
            msgspec.structs.replace(reference, uid=owner_uid) for reference in shared.metadata.owner_references
        )
        meta: ObjectMeta = msgspec.structs.replace(
            shared.metadata,
            name=self.name,
            namespace=self.namespace,
            uid=f"{self.namespace}/{self.name}@{int(self.created.timestamp())}",
            creation_timestamp=self.created,
            deletion_timestamp=_past(self.deleting, at),
            owner_references=references,
        )
        spec = msgspec.structs.replace(shared.spec, node_name=self.node if bound else "")
        status = PodStatus(phase=phase, conditions=tuple(conditions), start_time=bound)
        return Pod(metadata=meta, spec=spec, status=status)

    def is_there(self, at: datetime) -> bool:
        """Return whether the pod existed at that time."""
        return self.created <= at and (self.gone is None or at < self.gone)


def is_load(life: PodLife) -> bool:
    """Return whether a pod is one that a policy can move: not a DaemonSet's, not a node's own."""
    return life.pod_class.owner[0] not in _WITH_NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLife:
    """One NodeClaim from its creation to its end; `price` is dollars an hour as text, None if unknown."""

    name: str
    node_pool: str = ""
    node: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: str | None = None
    created: datetime | None = None
    launched: datetime | None = None
    registered: datetime | None = None
    ready: datetime | None = None
    deleting: datetime | None = None
    gone: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChange:
    """An object was as this from `at` on, or (`object` is None) was gone."""

    at: datetime
    kind: str
    namespace: str
    name: str
    object: AnyObject | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingGap:
    """A time of which nothing is known."""

    begins: datetime
    ends: datetime
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecording:
    """A stretch of a cluster's life: everything sorted by time, then name."""

    begins: datetime
    ends: datetime
    cluster: str = ""
    catalogue: str = ""
    missing: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    gaps: tuple[RecordingGap, ...] = ()
    clock_steps: tuple[tuple[datetime, float], ...] = ()
    changes: tuple[RecordedChange, ...] = ()
    claims: tuple[ClaimLife, ...] = ()
    pods: tuple[PodLife, ...] = ()

    def cluster_at(self, at: datetime) -> Cluster:
        """Return the cluster as it was at that time."""
        objects: dict[tuple[str, str, str], AnyObject] = {}
        for change in self.changes:
            if change.at > at:
                break
            key = (change.kind, change.namespace, change.name)
            if change.object is None:
                objects.pop(key, None)
            else:
                objects[key] = change.object
        uids = {(kind, namespace, name): item.metadata.uid for (kind, namespace, name), item in objects.items()}
        pods = [
            life.pod_at(at, uids.get((life.pod_class.owner[0], life.namespace, life.pod_class.owner[1]), ""))
            for life in self.pods
            if life.is_there(at)
        ]
        return replace(cluster_of([*objects.values(), *pods]), captured_at=at)


def _past(at: datetime | None, now: datetime) -> datetime | None:
    return at if at is not None and at <= now else None


def is_recording(path: Path) -> bool:
    """Return whether a path looks like a recording: a folder with hourly files, a .tar.gz of one, or one file."""
    if path.is_dir():
        return (path / MANIFEST).exists() or bool(files_of(path))
    return path.name.endswith((SUFFIX, ".tar.gz", ".tgz"))


def load_cluster_recording(path: Path) -> ClusterRecording:
    """Read a recording; raise InputError with one sentence if it is none."""
    reader = _Reader(str(path))
    for name, raw in _sources(path):
        reader.read_file(name, raw)
    return reader.finish()


# ---------------------------------------------------------------- bytes


def _sources(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        if path.is_dir():
            _check_manifest(path / MANIFEST)
            files = files_of(path)
            if not files:
                raise InputError(f"{path}: there is no recording in this folder; `dovetail record -o {path}` makes one")
            for file in files:
                yield file.name, file.read_bytes()
        elif path.name.endswith((".tar.gz", ".tgz")):
            yield from _members(path)
        else:
            yield path.name, path.read_bytes()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise InputError(f"{path}: it can't be read ({why}); give what `dovetail record` wrote") from None


def _check_manifest(path: Path) -> None:
    if not path.exists():
        return  # the files themselves say everything that counts
    try:
        version = json.loads(path.read_text())["version"]
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{path}: this is not the manifest of a recording; remove it to read the files alone"
        ) from None
    _check_version(version, path.name)


def _check_version(version: Any, name: str) -> None:
    if not isinstance(version, int) or version < 1:
        raise InputError(f"{name}: {version!r} is not a version of the format")
    if version > VERSION:
        raise InputError(
            f"{name}: its format is version {version} and this dovetail reads up to {VERSION}; use a newer dovetail"
        )


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(path) as archive:
            members = [member for member in archive.getmembers() if member.isfile() and member.name.endswith(SUFFIX)]
            if not members:
                raise InputError(f"{path}: there is no recording in this archive")
            for member in sorted(members, key=lambda member: Path(member.name).name):
                file = archive.extractfile(member)
                assert file is not None
                yield Path(member.name).name, file.read()
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"{path}: this is not a whole .tar.gz; pack the folder again") from None


def _unpacked(name: str, raw: bytes) -> tuple[bytes, bool]:
    """Return the text of a file and whether it is whole; what was cut off is left out."""
    if raw[:2] != b"\x1f\x8b":
        return raw, True
    found = io.BytesIO()
    while raw:
        unpacker = zlib.decompressobj(31)
        try:
            found.write(unpacker.decompress(raw, _MAX_FILE_BYTES))
        except zlib.error:
            if found.tell():
                return found.getvalue(), False
            raise InputError(f"{name}: it is damaged: not even its first line can be read") from None
        if not unpacker.eof:
            return found.getvalue(), False
        raw = unpacker.unused_data
    return found.getvalue(), True


# ---------------------------------------------------------------- lines


@dataclass(slots=True)
class _Reader:
    """Joins the files of a recording."""

    where: str
    header: HeaderLine | None = None
    begins: datetime | None = None
    ends: datetime | None = None
    missing: set[str] = field(default_factory=set)
    guessed: set[str] = field(default_factory=set)
    gaps: list[RecordingGap] = field(default_factory=list)
    clock_steps: list[tuple[datetime, float]] = field(default_factory=list)
    changes: list[RecordedChange] = field(default_factory=list)
    claims: dict[tuple[str, datetime | None], ClaimLife] = field(default_factory=dict)
    pods: dict[tuple[str, str, datetime], PodLife] = field(default_factory=dict)
    _cut: str = ""
    _objects: dict[tuple[str, str, str], AnyObject] = field(default_factory=dict)
    _classes: dict[bytes, RecordedClass] = field(default_factory=dict)
    _file_classes: dict[int, RecordedClass] = field(default_factory=dict)
    _file_pods: dict[int, PodLife] = field(default_factory=dict)
    _listing: bool = False
    _listed: set[tuple[str, str, str]] = field(default_factory=set)
    _listed_pods: set[tuple[str, str, datetime]] = field(default_factory=set)
    _listed_claims: set[tuple[str, datetime | None]] = field(default_factory=set)

    def read_file(self, name: str, raw: bytes) -> None:
        text, whole = _unpacked(name, raw)
        rows = text.split(b"\n")
        if rows and rows[-1]:  # no newline at its end: the last line was cut off
            rows.pop()
            whole = False
        lines = (self._decoded(name, number, row) for number, row in enumerate(rows, start=1) if row)
        header = next(lines, None)
        if not isinstance(header, HeaderLine):
            if header is None:
                return  # a crash right after its creation: it holds nothing
            raise InputError(f"{name}: its first line is not the header of a recording")
        self._open(name, header)
        ended = False
        for line in lines:
            ended = isinstance(line, EndLine)
            self._take(name, line)
        self._close_listing()
        self._cut = "" if ended and whole else f"{name} was cut off"

    def _decoded(self, name: str, number: int, row: bytes) -> Line:
        try:
            line: Line = DECODER.decode(row)
            return line
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            if number == 1:
                self._check_first(name, row)
            raise InputError(f"{name}: line {number} is not a line of a recording ({error})") from None

    @staticmethod
    def _check_first(name: str, row: bytes) -> None:
        """Raise for a header of a later version, whose other fields may have changed."""
        try:
            tree = msgspec.json.decode(row)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return
        if isinstance(tree, dict) and "version" in tree:
            _check_version(tree["version"], name)

    def _open(self, name: str, header: HeaderLine) -> None:
        _check_version(header.version, name)
        if self.header is not None and header.cluster != self.header.cluster:
            raise InputError(
                f"{self.where}: it holds two clusters, {self.header.cluster} and {header.cluster} ({name}); "
                "move the files of one to a folder of their own"
            )
        if self.ends is None:
            self.begins = header.begins
        elif header.begins - self.ends > _SEAM:
            why = self._cut or "no file covers it"
            self.gaps.append(RecordingGap(begins=self.ends, ends=header.begins, why=why))
        elif header.begins < self.ends - _SEAM:
            raise InputError(
                f"{name}: it begins {_shown(self.ends - header.begins)} before the file before it ends: two recorders "
                "wrote into one folder, or the clock was set back"
            )
        self.header = header
        self.ends = max(self.ends or header.begins, header.begins)
        self.missing.update(header.missing)
        self.guessed.update(header.guessed)
        self._file_classes, self._file_pods, self._listing = {}, {}, True
        self._listed, self._listed_pods, self._listed_claims = set(), set(), set()

    def _at(self, seconds: float) -> datetime:
        assert self.header is not None
        return self.header.begins + timedelta(seconds=seconds)

    def _stamp(self, seconds: float | None) -> datetime | None:
        return None if seconds is None else self._at(seconds)

    def _take(self, name: str, line: Line) -> None:
        if isinstance(line, HeaderLine):
            raise InputError(f"{name}: it has a second header")
        if isinstance(line, ClassLine):
            self._take_class(name, line)
            return
        at = self._at(line.at)
        if self._listing and line.at > 0:
            self._close_listing()
        assert self.ends is not None
        self.ends = max(self.ends, at)
        if isinstance(line, PodLine):
            self._take_pod(name, line)
        elif isinstance(line, ObjectLine):
            self._take_object(name, line, at)
        elif isinstance(line, GoneLine):
            self._objects.pop((line.kind, line.namespace, line.name), None)
            gone = RecordedChange(at=at, kind=line.kind, namespace=line.namespace, name=line.name, object=None)
            self.changes.append(gone)
        elif isinstance(line, ClaimLine):
            self._take_claim(line)
        elif isinstance(line, ClockLine):
            self.clock_steps.append((at, line.seconds))
        elif isinstance(line, GapLine):
            self.gaps.append(RecordingGap(begins=self._at(line.since), ends=at, why=line.why))

    def _take_class(self, name: str, line: ClassLine) -> None:
        raw = msgspec.json.encode(line.pod)
        found = self._classes.get(raw)
        if found is None:
            found = self._classes[raw] = RecordedClass(pod=_object(name, {**line.pod, "kind": "Pod"}, Pod))
        self._file_classes[line.id] = found

    def _take_pod(self, name: str, line: PodLine) -> None:
        life = self._file_pods.get(line.id)
        if life is None:
            if line.pod_class not in self._file_classes or not line.name:
                raise InputError(f"{name}: pod {line.id} has no class or no name before its first change")
            shared = self._file_classes[line.pod_class]
            created = self._at(line.created if line.created is not None else line.at)
            key = (shared.pod.metadata.namespace, line.name, created)
            life = self.pods.get(key)
            if life is None:
                life = self.pods[key] = PodLife(
                    name=line.name,
                    namespace=shared.pod.metadata.namespace,
                    pod_class=shared,
                    owner=line.owner,
                    created=created,
                    seen=self._at(line.at),
                )
            elif life.why == UNSEEN:
                life.gone, life.why = None, ""  # it was there all the time: a recorder listed it late
            self._file_pods[line.id] = life
            self._listed_pods.add(key)
        life.node = line.node or life.node
        life.why = line.why or life.why
        for field_name in ("bound", "ready", "deleting", "finished", "gone"):
            value = getattr(line, field_name)
            if value is not None:
                setattr(life, field_name, self._at(value))

    def _take_object(self, name: str, line: ObjectLine, at: datetime) -> None:
        kind = line.object.get("kind")
        if kind not in KINDS:
            return  # a kind that this version does not know
        item: AnyObject = _object(name, line.object, KINDS[kind])
        key = (kind, item.metadata.namespace, item.metadata.name)
        self._listed.add(key)
        if self._objects.get(key) != item:
            self._objects[key] = item
            self.changes.append(RecordedChange(at=at, kind=kind, namespace=key[1], name=key[2], object=item))

    def _take_claim(self, line: ClaimLine) -> None:
        created = self._stamp(line.created)
        key = (line.name, created)
        self._listed_claims.add(key)
        self.claims[key] = ClaimLife(
            name=line.name,
            node_pool=line.node_pool,
            node=line.node,
            instance_type=line.instance_type,
            zone=line.zone,
            capacity_type=line.capacity_type,
            price=line.price,
            created=created,
            launched=self._stamp(line.launched),
            registered=self._stamp(line.registered),
            ready=self._stamp(line.ready),
            deleting=self._stamp(line.deleting),
            gone=self._stamp(line.gone),
            reason=line.reason,
        )

    def _close_listing(self) -> None:
        """End what was there before this file and is not listed at its beginning: its end was not seen."""
        if not self._listing:
            return
        self._listing = False
        assert self.header is not None
        at = self.header.begins
        for key in [key for key in self._objects if key not in self._listed]:
            del self._objects[key]
            self.changes.append(RecordedChange(at=at, kind=key[0], namespace=key[1], name=key[2], object=None))
        for pod_key, life in self.pods.items():
            if life.gone is None and pod_key not in self._listed_pods:
                life.gone, life.why = at, life.why or UNSEEN
        for claim_key, claim in self.claims.items():
            if claim.gone is None and claim_key not in self._listed_claims:
                self.claims[claim_key] = replace(claim, gone=at, reason=claim.reason or UNSEEN)

    def finish(self) -> ClusterRecording:
        if self.header is None or self.begins is None or self.ends is None:
            raise InputError(f"{self.where}: there is not one whole line in it")
        name_evictions(self.claims.values(), self.pods.values())
        if self._cut:
            self.missing.add(f"the end: {self._cut}, or is being written")
        order = {key: number for number, key in enumerate(KINDS)}
        return ClusterRecording(
            cluster=self.header.cluster,
            begins=self.begins,
            ends=self.ends,
            catalogue=self.header.catalogue,
            missing=tuple(sorted(self.missing)),
            guessed=tuple(sorted(self.guessed)),
            gaps=tuple(self.gaps),
            clock_steps=tuple(self.clock_steps),
            changes=tuple(
                sorted(self.changes, key=lambda each: (each.at, order.get(each.kind, 99), each.namespace, each.name))
            ),
            claims=tuple(sorted(self.claims.values(), key=lambda each: (each.created or self.begins, each.name))),
            pods=tuple(sorted(self.pods.values(), key=lambda each: (each.created, each.namespace, each.name))),
        )


def name_evictions(claims: Iterable[ClaimLife], pods: Iterable[PodLife]) -> None:
    """Count a pod that was deleted while its node was leaving as evicted, also if no condition of it says so."""
    leaving = {claim.node: claim.deleting for claim in claims if claim.node and claim.deleting is not None}
    for life in pods:
        ending = life.deleting or life.gone
        if life.why == DELETED and ending is not None and life.node in leaving and leaving[life.node] <= ending:
            life.why = EVICTED


def _object(name: str, tree: dict[str, Any], kind: type) -> Any:
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{name}: an object in it can't be read ({error})") from None


def _shown(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    return f"{seconds // 60} minutes" if seconds >= 120 else f"{seconds} seconds"
