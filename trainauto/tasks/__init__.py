"""What is trained: each task knows its samples; everything below serves any of them."""
