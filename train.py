"""Train one network: python train.py -opt options/train/x.yml [--auto_resume] [--force_yml a:b=v ...].

On several ranks: torchrun --nproc-per-node N train.py -opt options/train/x.yml --launcher pytorch
"""

import sys

from trainauto.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
