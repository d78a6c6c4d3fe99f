"""The last hours of a cluster's life in memory: what `recordings.regret` asks of a recording, without one.

Holds the NodeClaims that are there, and the claims and pods that left within `KEEP`; pods that just run cost nothing.
Pure: the shell says what was observed and when. The lives are those that a recording of the same events has.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from dovetail.model.objects import NodeClaim, ObjectMeta, Pod
from dovetail.recordings.fold import claim_life, owner_of, update_life
from dovetail.recordings.lines import why_gone
from dovetail.recordings.read import ClaimLife, ClusterRecording, PodLife, RecordedClass, name_evictions

KEEP: Final = timedelta(hours=2)
"""As long as a removal can be undone (an hour), and as long again for it to be seen."""


@dataclass(slots=True, kw_only=True)
class RecentLives:
    """What left lately. `begins`: since when everything was seen."""

    begins: datetime
    _claims: dict[str, ClaimLife] = field(default_factory=dict)
    _ended_claims: list[ClaimLife] = field(default_factory=list)
    _leaving: dict[tuple[str, str], PodLife] = field(default_factory=dict)
    _gone: list[PodLife] = field(default_factory=list)

    def observe_pod(self, pod: Pod, at: datetime) -> None:
        """Take in a state of a pod; only those that leave are kept."""
        meta = pod.metadata
        key = (meta.namespace, meta.name)
        known = self._leaving.get(key)
        if known is not None and known.created != meta.creation_timestamp:
            self._end(key, at)  # its end was missed: another pod has its name
            known = None
        if known is not None:
            update_life(known, pod, at)
        elif meta.deletion_timestamp is not None:
            self._leaving[key] = _life(pod, at)

    def vanish_pod(self, namespace: str, name: str, last: Callable[[], Pod | None], at: datetime) -> None:
        """Take in the end of a pod; `last` returns its last state, asked for if it was not seen to leave."""
        if (namespace, name) not in self._leaving:
            pod = last()
            if pod is None:
                return
            self._leaving[namespace, name] = _life(pod, at)
        self._end((namespace, name), at)

    def _end(self, key: tuple[str, str], at: datetime) -> None:
        life = self._leaving.pop(key)
        life.gone, life.why = at, life.why or why_gone(None, "")
        self._gone.append(life)

    def observe_claim(self, claim: NodeClaim) -> None:
        """Take in a state of a NodeClaim."""
        self._claims[claim.metadata.name] = claim_life(claim)

    def vanish_claim(self, name: str, at: datetime) -> None:
        """Take in the end of a NodeClaim."""
        life = self._claims.pop(name, None)
        if life is not None:
            self._ended_claims.append(replace(life, gone=at))

    def recording(self, now: datetime) -> ClusterRecording:
        """Return the time within `KEEP` as a recording of claims and of the pods that left; forget what is older."""
        begins = max(self.begins, now - KEEP)
        self._gone = [life for life in self._gone if life.gone is None or life.gone > begins]
        self._ended_claims = [life for life in self._ended_claims if life.gone is None or life.gone > begins]
        claims = (*self._claims.values(), *self._ended_claims)
        pods = [*self._gone, *self._leaving.values()]
        name_evictions(claims, pods)
        return ClusterRecording(
            begins=begins,
            ends=now,
            claims=tuple(sorted(claims, key=lambda each: (each.created or begins, each.name))),
            pods=tuple(sorted(pods, key=lambda each: (each.created, each.namespace, each.name))),
        )


def _life(pod: Pod, at: datetime) -> PodLife:
    meta = pod.metadata
    owner, lasting = owner_of(pod)
    references = (owner,) if owner is not None and lasting else ()
    life = PodLife(
        name=meta.name,
        namespace=meta.namespace,
        pod_class=RecordedClass(pod=Pod(metadata=ObjectMeta(namespace=meta.namespace, owner_references=references))),
        owner="" if owner is None or lasting else f"{owner.kind}/{owner.name}",
        created=meta.creation_timestamp or at,
        seen=at,
    )
    update_life(life, pod, at)
    return life
