"""What an instruction means for the cluster as it is now: writes, "done already", or a failure."""
