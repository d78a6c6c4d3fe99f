"""Checks of NodePool and NodeClaim manifests."""
