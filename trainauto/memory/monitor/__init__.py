"""What memory is in use now: meters, budgets, NVML, and whether an error means out of memory."""
