"""What the engine remembers of commands that ended and of pods that moved; all bounded, all forgotten by time."""
