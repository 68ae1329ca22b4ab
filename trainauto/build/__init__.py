"""The composition root: options in, a run out."""

from trainauto.build.run import build_run

__all__ = ["build_run"]
