"""Option files of small networks to trace, some of which misbehave."""

import textwrap
from pathlib import Path
from typing import Any

from tests.integration.commands import tiny_options, write_options
from trainauto.builders.load_plugins import load_plugins
from trainauto.core.plan import Plan
from trainauto.options.load import LoadedOptions, load_options

PLAN = Plan.of(batch_size=4, lq_size=16)
NETWORKS = textwrap.dedent(
    """
    import os, sys, time
    import numpy as np
    import torch
    from torch import nn
    from trainauto.tasks.sr.archs import ARCHS

    class Net(nn.Module):
        def __init__(self, scale=2):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 3 * scale**2, 3, padding=1), nn.PixelShuffle(scale))
            self.begin()
        def begin(self): pass
        def forward(self, image): return self.layers(image)

    @ARCHS.register("talkative")
    class Talkative(Net):
        def forward(self, image):
            print('{"peak_bytes": 7}')
            if image.shape[-1] > 100:
                time.sleep(600)
            return self.layers(image)

    @ARCHS.register("aborts")
    class Aborts(Net):
        def forward(self, image):
            if self.training:
                print("these are my last words", file=sys.stderr, flush=True)
                os.abort()
            return self.layers(image)

    @ARCHS.register("starts_from_numbers")
    class StartsFromNumbers(Net):
        def begin(self):
            self.spread = float(np.asarray(self.layers[0].weight.detach()).std())
            assert 0.01 < self.spread < 1
        def forward(self, image): return self.layers(image) * self.spread
    """
)


def write_traced_options(folder: Path, network: str = "compact", **changes: Any) -> Path:
    """Write an option file beside a plugin of the networks; its data set does not exist."""
    (folder / "tracing_networks.py").write_text(NETWORKS)
    arguments = {"num_feat": 8, "num_conv": 1} if network == "compact" else {}
    chosen = {"network_g": {"type": network, **arguments}, "plugins": ["tracing_networks"]}
    changes = {**chosen, "train": {"grad_clip": 0.5}, **changes}
    return write_options(folder / "run.yml", tiny_options(folder / "no_images", **changes))


def loaded(file: Path) -> LoadedOptions:
    """Read an option file and its plugins."""
    options = load_options(file)
    load_plugins(options)
    return options
