"""The label domains that belong to a cloud, and which pools run under EKS Auto Mode.

EKS Auto Mode names the labels of its machines `eks.amazonaws.com/instance-*` where the AWS provider of Karpenter says
`karpenter.k8s.aws/instance-*`. Knows no catalogue and no node. Sits in model, above the objects.
"""

from typing import Final

from dovetail.model.objects import NodePool, SelectorRequirement

CLOUD_DOMAINS: Final = (
    "karpenter.k8s.aws",
    "eks.amazonaws.com",
    "karpenter.azure.com",
    "karpenter.k8s.gcp",
    "cloud.google.com",
)
"""Domains whose labels describe what the cloud sells: only the cloud's provider gives them to nodes."""
AUTO_MODE: Final = "eks.amazonaws.com"
"""The group of EKS Auto Mode's NodeClass, and the domain of its labels."""
COMPUTE_TYPE: Final = f"{AUTO_MODE}/compute-type"
AUTO: Final = "auto"
"""The value of `COMPUTE_TYPE` on every node of EKS Auto Mode."""
_AWS_MACHINE: Final = "karpenter.k8s.aws/instance-"
_AUTO_MACHINE: Final = f"{AUTO_MODE}/instance-"


def is_clouds_own(key: str) -> bool:
    """Return whether a label is under a cloud's own domain."""
    domain = key.rpartition("/")[0]
    return any(domain == own or domain.endswith(f".{own}") for own in CLOUD_DOMAINS)


def runs_auto_mode(pool: NodePool) -> bool:
    """Return whether EKS Auto Mode launches the pool's nodes: by its NodeClass, or by the labels that it requires."""
    spec = pool.spec.template.spec
    return spec.node_class_ref.group == AUTO_MODE or any(e.key.startswith(_AUTO_MACHINE) for e in spec.requirements)


def auto_mode_key(key: str) -> str | None:
    """Return EKS Auto Mode's name for a label of the AWS provider; None if it has none."""
    return _AUTO_MACHINE + key.removeprefix(_AWS_MACHINE) if key.startswith(_AWS_MACHINE) else None


def aws_key(key: str) -> str | None:
    """Return the AWS provider's name for a label of EKS Auto Mode; None if it has none."""
    return _AWS_MACHINE + key.removeprefix(_AUTO_MACHINE) if key.startswith(_AUTO_MACHINE) else None


def asks_for_label(entry: SelectorRequirement) -> bool:
    """Return whether a requirement needs the label: all but NotIn and DoesNotExist do."""
    return entry.operator not in ("NotIn", "DoesNotExist")
