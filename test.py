"""Measure a trained network: python test.py -opt options/test/x.yml [--force_yml a:b=v ...], or python test.py RUN."""

import sys

from trainauto.cli import main

if __name__ == "__main__":
    sys.exit(main(["test", *sys.argv[1:]]))
