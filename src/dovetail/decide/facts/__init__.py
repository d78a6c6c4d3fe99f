"""What decisions know about each node: costs, pods that would move, what objects to a move; and its cache."""
