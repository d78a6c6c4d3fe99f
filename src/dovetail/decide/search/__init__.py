"""The search for the cost command of greatest value (docs/rules.md#value): proposals, judged by the simulation."""
