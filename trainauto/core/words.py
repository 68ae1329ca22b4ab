"""Numbers with their nouns, for what people read."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or the plural: ``1 batch``, ``8 batches``."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"
