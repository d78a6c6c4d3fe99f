"""What instructions mean, on every cluster that they are carried out on."""
