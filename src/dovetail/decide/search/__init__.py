"""The search for the cost command of greatest value (spec section 21): proposals, and the simulation as their judge."""
