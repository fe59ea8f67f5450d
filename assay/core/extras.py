"""Optional packages: imported on use, with an error that names the missing extra."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from assay.core.errors import AssayError


def require(module: str, extra: str, purpose: str = "this part") -> ModuleType:
    """Imports and returns the module. Raises AssayError with the purpose and the extra to install if it is missing."""
    fix = f"pip install 'assay[{extra}]'"
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == package:
            raise AssayError(f"{package} is needed for {purpose}. Install it: {fix}") from error
        raise AssayError(f"{package} is needed for {purpose}, which needs {error.name}. Install it: {fix}") from error
    except ImportError as error:
        raise AssayError(f"{package} is needed for {purpose} but fails to import ({error}). Run {fix}") from error
