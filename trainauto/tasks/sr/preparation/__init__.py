"""Folders of images made ready for training: tiles, measures of them, low-quality partners, what is done already."""
