"""Samples of several kinds in one training: batches by memory, balanced losses, curves and a report."""
