"""Pods as the scheduler sees them: classes, variants, relaxation, volumes."""
