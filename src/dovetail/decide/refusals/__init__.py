"""Moves that can be refused without a simulation."""
