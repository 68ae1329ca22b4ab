"""How long something has lasted, in steps and in the samples that they trained."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Steps, and samples trained in them.

    Attributes:
        steps: optimizer steps.
        samples: trained in them, on all processes.
    """

    steps: int = 0
    samples: int = 0

    def __add__(self, other: "Span") -> "Span":
        return Span(self.steps + other.steps, self.samples + other.samples)

    def share_of(self, whole: "Span") -> float:
        """Return how much of ``whole`` it is: by steps or by samples, whichever is less."""
        return min(self.steps / whole.steps, self.samples / whole.samples)

    def reaches(self, patience: "Span") -> bool:
        """Whether it has the samples of ``patience``, and half of its steps at least.

        Where batches have grown, the samples are there after fewer steps, and a step of more samples teaches hardly
        more than one did before: a few of them say nothing.
        """
        return self.samples >= patience.samples and 2 * self.steps >= patience.steps


NOTHING = Span()
