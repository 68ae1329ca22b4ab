"""Figures of a training on several tasks: lines, curves, report."""
