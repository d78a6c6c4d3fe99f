"""Timings: never part of the tests, because machines are shared and noisy. `python -m benchmarks` runs them."""
