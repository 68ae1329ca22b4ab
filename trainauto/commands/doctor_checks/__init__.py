"""What ``doctor`` looks at, one small function each. Nothing here imports torch: the child that probes does."""
