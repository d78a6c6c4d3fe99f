"""Pages of simulated runs."""
