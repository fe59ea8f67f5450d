"""The vocabulary of a method's file: the record, recipes, slots, presets and group operations under one name.

Parts are in `assay.parts`, bodies and heads in `assay.models`. Names are imported on first use (see `core.lazy`).
"""

from assay.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
