"""Super-resolution: networks, losses, metrics, image sets, models, validation in tiles, and networks in use."""
