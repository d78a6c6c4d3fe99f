"""Karpenter v1.15 features that Dovetail's decisions take into account: one file per feature, tables of cases."""
