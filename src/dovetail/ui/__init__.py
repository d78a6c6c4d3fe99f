"""The live view, in a browser and in a terminal. Never writes to a cluster."""
