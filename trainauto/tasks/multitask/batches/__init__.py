"""Which samples come together in a batch, and how they become one."""
