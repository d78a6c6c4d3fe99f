"""The plan and one node's explanation as pages."""
