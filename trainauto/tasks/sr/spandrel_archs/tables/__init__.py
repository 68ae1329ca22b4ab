"""One table a network, in the order in which people look for them."""

from trainauto.tasks.sr.spandrel_archs.table import LibraryNetwork
from trainauto.tasks.sr.spandrel_archs.tables.convolutions import CONVOLUTIONS
from trainauto.tasks.sr.spandrel_archs.tables.light_attention import LIGHT_ATTENTION
from trainauto.tasks.sr.spandrel_archs.tables.mixed_attention import MIXED_ATTENTION
from trainauto.tasks.sr.spandrel_archs.tables.restoration import RESTORATION
from trainauto.tasks.sr.spandrel_archs.tables.window_attention import WINDOW_ATTENTION

LIBRARY_NETWORKS: tuple[LibraryNetwork, ...] = (
    *MIXED_ATTENTION,
    *WINDOW_ATTENTION,
    *LIGHT_ATTENTION,
    *CONVOLUTIONS,
    *RESTORATION,
)
"""All networks of the library that are offered."""
