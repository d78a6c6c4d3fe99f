"""Scenes in which an engine talks to a scripted world; `test_conversations` checks every line."""
