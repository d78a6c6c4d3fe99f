"""The rules that can block a node: candidates, timers, budgets, prices."""
