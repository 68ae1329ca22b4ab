"""A training step followed storage by storage, on fake tensors or real ones."""
