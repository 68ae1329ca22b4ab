"""The vocabulary of every package: plans, batches, records, decisions, objectives, registries, errors."""
