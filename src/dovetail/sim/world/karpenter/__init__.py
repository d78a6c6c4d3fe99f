"""Karpenter's part of the simulated cluster."""
