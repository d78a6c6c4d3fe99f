"""The nouns: frozen values without any I/O."""
