"""Commands that need no cluster: manifests, catalogues, CRDs, completion."""
