"""The outside shape of the nouns: decode, default, validate, CRDs."""
