"""Commands that run the simulator."""
