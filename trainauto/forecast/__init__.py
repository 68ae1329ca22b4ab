"""What a run will need of memory, known before its first step: traced, benchmarked, or learned by earlier runs."""
