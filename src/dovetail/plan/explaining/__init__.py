"""Why one node stays or goes, and what would change that: asked of the round."""
