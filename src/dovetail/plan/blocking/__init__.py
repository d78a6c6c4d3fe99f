"""What blocks how much savings, and how to remove it."""
