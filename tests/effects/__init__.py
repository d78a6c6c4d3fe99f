"""What instructions mean, on every cluster that they are executed on."""
