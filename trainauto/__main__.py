"""``python -m trainauto``."""

import sys

from trainauto.cli import main

if __name__ == "__main__":
    sys.exit(main())
