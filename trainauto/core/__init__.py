"""The vocabulary every room speaks: plans, batches, records, decisions, passes, registries, errors."""
