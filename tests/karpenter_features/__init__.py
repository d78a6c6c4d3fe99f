"""Karpenter v1.15 features beside which Dovetail decides: one file per feature, tables of cases."""
