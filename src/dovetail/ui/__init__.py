"""The live view, in a browser and in a terminal: watches, asks and shows; never writes to a cluster."""
