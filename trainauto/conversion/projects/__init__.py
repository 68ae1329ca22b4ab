"""What becomes of each key of each project, in tables."""
