"""Durations, cron schedules and the windows that they open."""
