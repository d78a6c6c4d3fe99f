"""Shell 2: a simulated cluster on a virtual clock."""
