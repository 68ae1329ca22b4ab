"""What a trained network is used for: loading one, enlarging pictures, measuring sets of images."""
