"""Pods counted per domain of a label, for spread, affinity and anti-affinity."""
