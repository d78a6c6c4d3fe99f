"""Dovetail: node disruption for Kubernetes, decided by one pure core and carried out by three thin shells."""

__version__ = "0.1.0"
