"""Parsing the command line and wiring the shells; no decisions."""
