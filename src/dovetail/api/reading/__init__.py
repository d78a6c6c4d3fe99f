"""From bytes to objects: documents, trees, structs, and what a capture carries besides."""
