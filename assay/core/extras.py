"""Optional packages: imported where they are used, with a message that names the extra when one is missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from assay.core.errors import AssayError


def require(module: str, extra: str, purpose: str = "this part") -> ModuleType:
    """The module, or an AssayError that says what needs it and which extra of assay brings it."""
    fix = f"pip install 'assay[{extra}]'"
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == package:
            raise AssayError(f"{package} is needed for {purpose}: {fix}") from error
        raise AssayError(f"{package} is needed for {purpose}, and itself needs {error.name}: {fix}") from error
    except ImportError as error:
        raise AssayError(f"{package} is needed for {purpose} but cannot be imported ({error}): {fix}") from error
