"""What an instruction means for the cluster in its current state: writes, "already done", or a failure."""
