"""The mean that networks subtract from RGB images."""

RGB_MEAN = (0.4488, 0.4371, 0.4040)
"""Mean of DIV2K in [0, 1]."""
