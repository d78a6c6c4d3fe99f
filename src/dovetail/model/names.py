"""Label, annotation, taint and condition names: Karpenter's, Kubernetes' and our own, each in one place."""

from typing import Final

NODEPOOL: Final = "karpenter.sh/nodepool"
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
INITIALIZED_LABEL: Final = "karpenter.sh/initialized"
REGISTERED_LABEL: Final = "karpenter.sh/registered"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
DISRUPTION_COST: Final = "karpenter.sh/disruption-cost"
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
NODEPOOL_HASH: Final = "karpenter.sh/nodepool-hash"
NODEPOOL_HASH_VERSION: Final = "karpenter.sh/nodepool-hash-version"

DISRUPTION_TAINT: Final = "karpenter.sh/disruption"
DISRUPTION_TAINT_VALUE: Final = "disrupting"
DISRUPTED_TAINT: Final = "karpenter.sh/disrupted"

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
HOSTNAME: Final = "kubernetes.io/hostname"
ARCH: Final = "kubernetes.io/arch"
OS: Final = "kubernetes.io/os"

MANAGE: Final = "dovetail.dev/manage"
POLICY_ANNOTATION: Final = "dovetail.dev/disruption"
HOLD: Final = "dovetail.dev/hold"
ALWAYS_DO_NOT_DISRUPT: Final = "dovetail.dev/do-not-disrupt"
COMMAND: Final = "dovetail.dev/command"
REPLACES: Final = "dovetail.dev/replaces"
STEERING_MARK: Final = "dovetail.dev/next-victim"
CLOSING_TAINT: Final = "dovetail.dev/closing"

CONDITION_INITIALIZED: Final = "Initialized"
CONDITION_LAUNCHED: Final = "Launched"
CONDITION_REGISTERED: Final = "Registered"
CONDITION_DRIFTED: Final = "Drifted"
CONDITION_CONSOLIDATABLE: Final = "Consolidatable"
CONDITION_INSTANCE_TERMINATING: Final = "InstanceTerminating"

SPOT: Final = "spot"
ON_DEMAND: Final = "on-demand"
RESERVED: Final = "reserved"
