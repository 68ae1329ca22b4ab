"""Lets the environment of the simulated card find the packages of the project's own, after torch's CUDA build."""

import os
import site

if folder := os.environ.get("SIMULATED_CARD_BESIDE"):
    site.addsitedir(folder)
