"""Experiment trackers: what a run tells them, the threads that do, and one module for each."""
