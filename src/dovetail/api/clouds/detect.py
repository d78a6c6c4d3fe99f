"""Which cloud and region a cluster runs in, from the provider ids and labels of its nodes.

Returns the value for `--catalog`, or says how to get a catalogue. The nodes that Karpenter manages count first.
Knows nothing of prices.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from dovetail.api.clouds.tables import region_of, regions
from dovetail.model.catalogue import CatalogueError
from dovetail.model.names import NODEPOOL, REGION, ZONE
from dovetail.model.objects import Node

_SCHEMES: Final = {"aws": "aws", "azure": "azure", "gce": "gcp"}
_PREFIXES: Final = (
    ("karpenter.k8s.aws/", "aws"),
    ("topology.k8s.aws/", "aws"),
    ("eks.amazonaws.com/", "aws"),
    ("karpenter.azure.com/", "azure"),
    ("kubernetes.azure.com/", "azure"),
    ("karpenter.k8s.gcp/", "gcp"),
    ("topology.k8s.gcp/", "gcp"),
    ("cloud.google.com/", "gcp"),
)
_ZONE_TAILS: Final = {"aws": re.compile(r"(?<=\d)[a-z]$"), "gcp": re.compile(r"-[a-z]$"), "azure": re.compile(r"-\d$")}


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cluster runs, according to its nodes; an empty cloud or region is unknown.

    `others`: catalogues of further regions that some nodes are in.
    """

    cloud: str = ""
    region: str = ""
    others: tuple[str, ...] = ()

    @property
    def catalogue(self) -> str:
        """Return the text for `--catalog`; empty if the cloud or the region is not known."""
        return f"{self.cloud}:{self.region}" if self.cloud and self.region else ""


def choose_catalogue(nodes: Iterable[Node]) -> tuple[str, str]:
    """Return the catalogue of the nodes' cloud and region, and a note for people; raise CatalogueError if none fits."""
    home = home_of(nodes)
    if region_of(home.cloud, home.region) is None:
        where = (
            f"there is no built-in table for {home.catalogue}"
            if home.catalogue
            else "no node says its cloud and region"
        )
        raise CatalogueError(
            f"no prices: {where}; give --catalog aws:REGION, azure:REGION, gcp:REGION or a JSON file "
            "('dovetail catalog export --from-nodes -f FILE' writes one to fill in)"
        )
    note = (
        f"prices are those of {home.catalogue}, but some nodes are in {', '.join(home.others)}" if home.others else ""
    )
    return home.catalogue, note


def home_of(nodes: Iterable[Node]) -> Home:
    """Return the cloud and region of most nodes; ties are broken by name."""
    every = tuple(nodes)
    managed = [node for node in every if NODEPOOL in node.metadata.labels]
    places = Counter(place for node in managed or every if any(place := _place(node)))
    ranked = sorted(places, key=lambda place: (not all(place), -places[place], place))
    if not ranked:
        return Home()
    (cloud, region), *rest = ranked
    others = tuple(sorted({f"{c}:{r}" for c, r in rest if c and r}))
    return Home(cloud=cloud, region=region, others=others)


def cloud_of_labels(keys: Iterable[str]) -> str:
    """Return the cloud whose own labels are among these; empty if there is none."""
    known = tuple(keys)
    return next((name for prefix, name in _PREFIXES if any(key.startswith(prefix) for key in known)), "")


def _place(node: Node) -> tuple[str, str]:
    labels = node.metadata.labels
    scheme, _, rest = node.spec.provider_id.partition("://")
    cloud = _SCHEMES.get(scheme, "") or cloud_of_labels(labels)
    region = labels.get(REGION, "")
    if not region and cloud:
        zone = labels.get(ZONE, "") or _zone_of_id(cloud, rest)
        region = _ZONE_TAILS[cloud].sub("", zone)
    if region and not cloud:
        clouds = [entry.cloud for entry in regions() if entry.name == region]
        cloud = clouds[0] if len(clouds) == 1 else ""
    return cloud, region


def _zone_of_id(cloud: str, rest: str) -> str:
    """Return the zone in a provider id: aws:///ZONE/i-..., gce://PROJECT/ZONE/NAME; Azure's has none."""
    parts = rest.split("/")
    if cloud in ("aws", "gcp") and len(parts) >= 3:
        return parts[1]
    return ""
