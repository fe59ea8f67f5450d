"""Claims of methods, one file each, and what measures them: probes, laws, mutants, stamps, verdicts, testbeds.

The names that a claims file needs are imported on first use (see `core.lazy`). Training imports none of it.
"""

from assay.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
