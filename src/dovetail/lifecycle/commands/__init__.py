"""One command from its decision to its end: phases, steps, signals, records."""
