"""The composition root: options in, a run out."""

from trainauto.build.documents import option_documents
from trainauto.build.run import build_run

__all__ = ["build_run", "option_documents"]
