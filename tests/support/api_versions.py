"""The API version of each kind that is not in the core group."""

API_VERSIONS = {
    "Deployment": "apps/v1",
    "CapacityBuffer": "autoscaling.x-k8s.io/v1beta1",
    "NodeOverlay": "karpenter.sh/v1alpha1",
    "VerticalPodAutoscaler": "autoscaling.k8s.io/v1",
    "NodePool": "karpenter.sh/v1",
    "NodeClaim": "karpenter.sh/v1",
    "PodDisruptionBudget": "policy/v1",
    "DaemonSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "StorageClass": "storage.k8s.io/v1",
    "CSINode": "storage.k8s.io/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
}
