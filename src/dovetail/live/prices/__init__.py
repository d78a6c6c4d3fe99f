"""Live prices, and how old they are."""
