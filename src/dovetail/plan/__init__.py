"""Shell 3: what-if on a captured cluster."""
