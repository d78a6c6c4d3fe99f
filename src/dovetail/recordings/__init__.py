"""Recordings: a stretch of a real cluster's life in files, written beside it and read by the simulator."""
