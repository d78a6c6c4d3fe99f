"""Should we disrupt? Candidates, budgets, cost, gates and the methods of one round."""
