"""What memory is in use, and whether an error means that it ran out."""
