"""Commands that answer from a captured or live cluster what would be done, and why not."""
