"""Training loops that are not ours: what a run of an option file has, around a loop of one's own."""
