"""Numbers that are scrambled the same everywhere."""


def splitmix64(value: int) -> int:
    """Scramble a 64-bit integer (SplitMix64's finaliser, Steele et al. 2014): stable on every platform and version."""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)
