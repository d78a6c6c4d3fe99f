"""Can these pods live there? The placement rules and the columnar kernel."""
