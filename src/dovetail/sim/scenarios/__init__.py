"""Scenarios: what a simulated cluster starts from and what happens to it."""
