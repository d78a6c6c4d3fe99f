"""The lines of a recording: what each says, and the version of the format (docs/recordings.md).

A file is NDJSON: a header, everything that was there when it begins, then every change, then a line `end`. Times are
seconds since `begins` of the file's header, so that each file can be read alone. Pods refer to a class by its number,
which holds in their file only. Decides nothing; sits at the bottom of `recordings`.
"""

from typing import Any, Final

import msgspec

from dovetail.model.objects import Instant

VERSION: Final = 1


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag_field="line"):
    """Base of all lines."""


class HeaderLine(_Line, frozen=True, tag="header"):
    """The first line of a file: which cluster, from when on, and what could not be read."""

    version: int
    cluster: str
    begins: Instant
    recorder: str = ""
    catalogue: str = ""
    missing: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    anonymised: bool = False


class ObjectLine(_Line, frozen=True, tag="object"):
    """An object other than a pod, as it is from `at` on; only what a rule reads of it."""

    at: float
    object: dict[str, Any]


class GoneLine(_Line, frozen=True, tag="gone"):
    """An object other than a pod is no longer there."""

    at: float
    kind: str
    name: str
    namespace: str = ""


class ClassLine(_Line, frozen=True, tag="class"):
    """What pods of one owner share: namespace, labels, owner, requests and constraints."""

    id: int
    pod: dict[str, Any]


class PodLine(_Line, frozen=True, tag="pod"):
    """What became known of a pod at `at`. The first line of a pod has name, class and creation; later ones add."""

    id: int
    at: float
    name: str = ""
    pod_class: int | None = msgspec.field(default=None, name="class")
    owner: str = ""
    created: float | None = None
    node: str = ""
    bound: float | None = None
    ready: float | None = None
    deleting: float | None = None
    finished: float | None = None
    gone: float | None = None
    why: str = ""


class ClaimLine(_Line, frozen=True, tag="claim"):
    """What is known of a NodeClaim's life at `at`: each line has all of it."""

    at: float
    name: str
    node_pool: str = ""
    node: str = ""
    instance_type: str = msgspec.field(default="", name="type")
    zone: str = ""
    capacity_type: str = ""
    price: str | None = None
    created: float | None = None
    launched: float | None = None
    registered: float | None = None
    ready: float | None = None
    deleting: float | None = None
    gone: float | None = None
    reason: str = ""


class ClockLine(_Line, frozen=True, tag="clock"):
    """The recorder's clock was set: by how many seconds. Times after it are by the new clock."""

    at: float
    seconds: float


class GapLine(_Line, frozen=True, tag="gap"):
    """Nothing is known of the time since `since`: what happened then is not guessed."""

    at: float
    since: float
    why: str = ""


class EndLine(_Line, frozen=True, tag="end"):
    """The last line of a file that was closed in order; a file without one was cut off."""

    at: float


Line = HeaderLine | ObjectLine | GoneLine | ClassLine | PodLine | ClaimLine | ClockLine | GapLine | EndLine

EVICTED: Final = "evicted"
DELETED: Final = "deleted"
COMPLETED: Final = "completed"
BY_POLICY: Final = frozenset({EVICTED, "nodeGone", "preempted"})
"""Ends of pods that the load did not ask for: their owners make new ones."""
_DISRUPTION_TARGET: Final = {
    "EvictionByEvictionAPI": EVICTED,
    "PreemptionByScheduler": "preempted",
    "DeletionByTaintManager": "nodeGone",
    "DeletionByPodGC": "nodeGone",
    "TerminationByKubelet": "killed",
}


def why_gone(disruption_target: str | None, phase: str) -> str:
    """Return why a pod ended: `completed`, `failed`, `evicted`, `preempted`, `nodeGone`, `killed` or `deleted`."""
    if disruption_target is not None:
        return _DISRUPTION_TARGET.get(disruption_target, DELETED)
    return {"Succeeded": COMPLETED, "Failed": "failed"}.get(phase, DELETED)


ENCODER: Final = msgspec.json.Encoder()
DECODER: Final = msgspec.json.Decoder(Line)


def schema() -> dict[str, Any]:
    """Return the JSON schema of a line."""
    return msgspec.json.schema(Line)
