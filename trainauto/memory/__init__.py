"""What memory a training step needs: traced, predicted, measured, and held to a limit."""
