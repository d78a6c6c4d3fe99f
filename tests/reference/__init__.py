"""A plain, slow packer that follows Karpenter's rules object by object: what the fast kernel is checked against."""
