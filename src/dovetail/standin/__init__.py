"""A stand-in for Karpenter, the cloud and the kubelets on clusters that have none."""
