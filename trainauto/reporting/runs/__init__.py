"""Runs read back from their files: what each has come to, lists of them, comparisons, and all of it in words."""
