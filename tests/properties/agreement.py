"""Query both packers, and shrink a cluster on which they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from dovetail.api.catalogue import decode_catalogue, encode_catalogue
from dovetail.model.cluster import Cluster, cluster_of
from dovetail.model.objects import KINDS
from dovetail.model.settings import PROFILES, MinValuesPolicy, PreferencePolicy, Profile
from tests.reference.generator import Sample
from tests.reference.packer import ReferencePacker
from tests.support.golden_answers import Answer, reference_answer
from tests.support.golden_kernel import Kernel

KINDS_IN_ORDER = (
    "node_pools",
    "node_claims",
    "nodes",
    "pods",
    "pdbs",
    "daemon_sets",
    "pvcs",
    "pvs",
    "storage_classes",
    "csi_nodes",
    "namespaces",
)
PRUNED = ("pods", "nodes", "node_claims", "node_pools", "daemon_sets", "pdbs", "pvcs", "pvs", "csi_nodes")


@dataclass(frozen=True)
class Difference:
    """Hold a query that the packers answer differently: `what` is a few words, the rest are both answers."""

    what: str
    reference: Answer
    kernel: Answer


def differences(sample: Sample) -> Iterator[Difference]:
    """Yield all queries of a sample on which the packers differ."""
    reference = ReferencePacker(sample.cluster, sample.catalogue, sample.settings, sample.now)
    kernel = Kernel(sample.cluster, sample.catalogue, sample.settings, sample.now)
    ours, theirs = replace(reference_answer(reference.place()), pods=0), kernel.place()
    if ours != theirs:
        yield Difference("place", ours, theirs)
    known = {state.name for state in reference.nodes}
    for goes, closed in sample.questions:
        if not known.issuperset((*goes, *closed)):
            continue
        ours, theirs = reference_answer(reference.simulate(goes, closed)), kernel.simulate(goes, closed)
        if ours != theirs:
            yield Difference(f"simulate {','.join(goes)} closed {','.join(closed)}", ours, theirs)


def differs(sample: Sample) -> bool:
    """Return whether the packers differ on any query."""
    return next(differences(sample), None) is not None


def smallest(sample: Sample, fails: Callable[[Sample], bool] = differs) -> Sample:
    """Remove objects one by one as long as the sample still fails."""
    shrunk = True
    while shrunk:
        shrunk = False
        for smaller in _smaller(sample):
            if fails(smaller):
                sample, shrunk = smaller, True
                break
    return sample


def _smaller(sample: Sample) -> Iterator[Sample]:
    for question in sample.questions:
        if len(sample.questions) > 1:
            yield replace(sample, questions=(question,))
    for name in PRUNED:
        items = getattr(sample.cluster, name)
        for index in range(len(items)):
            fewer: Cluster = replace(sample.cluster, **{name: items[:index] + items[index + 1 :]})
            yield replace(sample, cluster=fewer)
    kinds = sample.catalogue.instance_types
    for index in range(len(kinds)):
        yield replace(sample, catalogue=replace(sample.catalogue, instance_types=kinds[:index] + kinds[index + 1 :]))


# Samples as files


def dump(sample: Sample, why: str) -> bytes:
    """Return a sample as a readable file."""
    objects = [item for name in KINDS_IN_ORDER for item in getattr(sample.cluster, name)]
    document = {
        "why": why,
        "seed": sample.seed,
        "now": sample.now,
        "settings": {
            "profile": sample.settings.profile.value,
            "preferencePolicy": sample.settings.preference_policy.value,
            "minValuesPolicy": sample.settings.min_values_policy.value,
            "markedForDeletionNodes": sample.settings.marked_for_deletion_nodes,
        },
        "questions": sample.questions,
        "catalogue": msgspec.json.decode(encode_catalogue(sample.catalogue)),
        "objects": [msgspec.to_builtins(item) for item in objects],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def load(data: bytes) -> Sample:
    """Return a sample from its file."""
    document = msgspec.json.decode(data)
    given = document["settings"]
    settings = replace(
        PROFILES[Profile(given["profile"])],
        preference_policy=PreferencePolicy(given["preferencePolicy"]),
        min_values_policy=MinValuesPolicy(given["minValuesPolicy"]),
        marked_for_deletion_nodes=tuple(given["markedForDeletionNodes"]),
    )
    return Sample(
        seed=document["seed"],
        features=(),
        cluster=cluster_of(msgspec.convert(item, KINDS[item["kind"]]) for item in document["objects"]),
        catalogue=decode_catalogue(msgspec.json.encode(document["catalogue"])),
        settings=settings,
        now=datetime.fromisoformat(document["now"]),
        questions=tuple((tuple(goes), tuple(closed)) for goes, closed in document["questions"]),
    )
