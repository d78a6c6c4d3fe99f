"""New nodes: templates, instance types, claims being filled, DaemonSet overhead."""
