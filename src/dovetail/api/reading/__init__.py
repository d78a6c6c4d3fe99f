"""From bytes to objects: documents, trees, structs, and the metadata of a capture."""
