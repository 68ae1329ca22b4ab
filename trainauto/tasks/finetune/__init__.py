"""Vision-language models taught by conversations with pictures: files, labels, LoRA."""

import logging

# Importing transformers' Trainer imports bitsandbytes, where it is installed, which asks on some CPUs for a kernel that
# layers in 4 bits never use here (see four_bits.settle).
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
