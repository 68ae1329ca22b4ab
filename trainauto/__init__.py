"""trainauto: training that fills the GPU by itself and survives running out of memory."""

__version__ = "0.1.0"
