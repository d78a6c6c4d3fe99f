"""How a snapshot reads nodes, and what it hands over to the next one."""
