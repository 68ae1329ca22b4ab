"""Vision-language models taught by conversations with pictures: files, labels, LoRA."""
