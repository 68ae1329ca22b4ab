"""Optimizers by name, with the arguments torch gives them."""

from torch.optim import SGD, Adam, AdamW

from trainauto.optim.registry import OPTIMIZERS

OPTIMIZERS.register("Adam")(Adam)
OPTIMIZERS.register("AdamW")(AdamW)
OPTIMIZERS.register("SGD")(SGD)
