"""torch's CUDA caching allocator, simulated: what a step reserves, and the least that it fits in."""
