"""Labels: their names and syntax, requirements on them, and label selectors."""
