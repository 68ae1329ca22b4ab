"""Networks that spandrel implements, under traiNNer's names. Importing this package registers them; none is loaded."""

from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.spandrel_archs.constructors import register_all
from trainauto.tasks.sr.spandrel_archs.library import all_architectures
from trainauto.tasks.sr.spandrel_archs.table import LibraryNetwork
from trainauto.tasks.sr.spandrel_archs.tables import LIBRARY_NETWORKS

__all__ = ["LIBRARY_NETWORKS", "LibraryNetwork", "all_architectures"]

register_all(ARCHS, LIBRARY_NETWORKS)
