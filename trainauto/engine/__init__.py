"""How a run goes: the loop, the step, checkpoints, signals."""
