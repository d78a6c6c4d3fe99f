"""The simulated cluster: cloud, kubelets, scheduler, controllers and Karpenter on a virtual clock."""
