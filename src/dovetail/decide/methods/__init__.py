"""The methods of a round, one module each, and what they share."""
