"""What decisions know about each node: costs, pods that would move, who objects; and the cache of it."""
