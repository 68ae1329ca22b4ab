"""Texts of any length: batches of them, and what they take in memory."""
