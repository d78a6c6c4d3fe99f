"""What the controller reports about itself: logs, metrics, notifications, probes."""
