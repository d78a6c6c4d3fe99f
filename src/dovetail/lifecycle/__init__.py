"""What happens over time: events in, instructions out."""
