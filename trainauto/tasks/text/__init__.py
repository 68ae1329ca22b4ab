"""Texts of any length: tokenized once, batched by what a batch costs."""
