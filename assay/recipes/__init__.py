"""Base recipes: each a function of the task defaults (`preset`) it is built for."""

from assay.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
