"""The promises that are checked while a simulation runs, and the faults that try to break them."""
