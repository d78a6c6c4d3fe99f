"""The CustomResourceDefinitions of NodePool and NodeClaim."""
