"""Tells people what a run does: run directory, JSON lines, console, TensorBoard. It reads and never decides."""
