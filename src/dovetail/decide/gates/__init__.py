"""The rules that hold a node back: candidates, timers, budgets, prices."""
