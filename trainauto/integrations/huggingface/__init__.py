"""The Trainer of transformers on the engine's own parts; :mod:`trainauto.huggingface` has its names."""
