"""The well-known labels, their deprecated names, and the syntax of labels.

A leaf of the model: knows no object and no requirement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from dovetail.model import names

WINDOWS_BUILD: Final = "node.kubernetes.io/windows-build"


WELL_KNOWN: Final = frozenset(
    {
        names.NODEPOOL,
        names.ZONE,
        names.REGION,
        names.INSTANCE_TYPE,
        names.ARCH,
        names.OS,
        names.CAPACITY_TYPE,
        WINDOWS_BUILD,
    }
)
"""Labels that Karpenter itself puts on nodes: a pod may ask for them although the pool says nothing about them."""


ALIASES: Final[Mapping[str, str]] = {
    "failure-domain.beta.kubernetes.io/zone": names.ZONE,
    "failure-domain.beta.kubernetes.io/region": names.REGION,
    "beta.kubernetes.io/arch": names.ARCH,
    "beta.kubernetes.io/os": names.OS,
    "beta.kubernetes.io/instance-type": names.INSTANCE_TYPE,
}
"""Old names of labels, each with the one it is read as."""


_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")


_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


def well_known(provided: Iterable[str] = ()) -> frozenset[str]:
    """Return well-known labels together with those that the cloud provider's instance types carry."""
    return WELL_KNOWN.union(provided)


def is_qualified_name(text: str) -> bool:
    """Return whether a text is a valid label key: a name, optionally after a DNS domain and a slash."""
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > 253 or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= 63 and _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Return whether a text is a valid label value; the empty one is."""
    return not text or (len(text) <= 63 and _NAME.fullmatch(text) is not None)
