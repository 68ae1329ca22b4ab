"""The page of a run, one file that opens from disk: what happened, and why."""
