"""``train.py`` where PyTorch was built without NCCL, which the simulated card has none of; under torchrun.

torchrun --nproc-per-node 2 train_over_gloo.py -opt FILE --launcher pytorch
"""

import sys
from pathlib import Path

import torch.distributed

sys.path.insert(0, str(Path(__file__).parents[3]))

from trainauto.cli import main

torch.distributed.is_nccl_available = lambda: False

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
