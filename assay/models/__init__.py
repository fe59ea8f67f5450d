"""Models: bodies, heads, and pretrained ones; by name: `from assay.models import Perceptron`."""

from assay.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
