"""The simulated kube-scheduler and what it looks at."""
