"""What batches of several tasks take in memory: traced, corrected by measurements, guarded."""
