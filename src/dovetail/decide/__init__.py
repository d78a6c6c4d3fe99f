"""Which nodes should be disrupted? Candidates, budgets, cost, gates and the methods of one round."""
