"""The meaning of instructions on every cluster that executes them."""
