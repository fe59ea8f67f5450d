"""Parts that two or more methods use, one folder for each slot; by name: `from assay.parts import Clip`."""

from assay.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
