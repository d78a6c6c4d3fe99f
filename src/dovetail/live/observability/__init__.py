"""What the controller shows of itself: logs, metrics, notifications, probes."""
