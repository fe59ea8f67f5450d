"""Where and how a pretrained model computes if the user does not say: on a GPU, in bfloat16, with compiled layers.

What is chosen is written into config.json as if the user had said it, so that a resumed run computes as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from assay.core.errors import warn
from assay.engine.batching import by_reach
from assay.engine.caches import compiled_before
from assay.engine.engine import Engine
from assay.engine.placement import Placement
from assay.models.pretrained.adapters import adapter_settings
from assay.runs.config import read_config
from assay.runs.options import RunOptions

GPU, HALF, FULL = "cuda", "bfloat16", "float32"
CHANGES = "--device, --dtype, --compiled or --no-compiled"


def chosen(
    model: str | None,
    options: RunOptions,
    settings: Mapping[str, Any],
    placement: Placement = Placement(),
    *,
    device: str | None = None,
    compiled: bool | None = None,
) -> tuple[Placement, RunOptions]:
    """Returns the placement and the options with device, compiled layers and dtype where these are None.

    A pretrained model is trained on a GPU if there is one, in bfloat16 (the optimizer keeps float32 master weights)
    if that GPU has it, and with compiled layers; not compiled with adapters, whose three variants of a layer take
    longer to compile than short runs to train. Without a pretrained model, on the CPU and with several ranks, for which
    these were not measured, nothing is changed.
    """
    if device is None:
        has_gpu = model is not None and placement.ranks == 1 and torch.cuda.is_available()
        device = GPU if has_gpu else "cpu"
    placement = replace(placement, device=device, compiled=bool(compiled))
    if not has_defaults(model, placement):
        return placement, options
    if compiled is None:
        placement = replace(placement, compiled=not is_adapted(model, options, settings))
    if dtype_of(options, settings) is None and has_half(device):
        options = replace(options, language=replace(options.language, dtype=HALF))
    return placement, options


def has_defaults(model: str | None, placement: Placement) -> bool:
    """Returns whether defaults of this module hold: a pretrained model in one process on a GPU."""
    return model is not None and placement.ranks == 1 and placement.device.partition(":")[0] == GPU


def moved(config: Mapping[str, Any], device: str | None) -> Mapping[str, Any]:
    """Returns the config of a run on another device; layers are compiled on its own kind of device alone."""
    if device is None:
        return config
    same = device.partition(":")[0] == str(config.get("device", "cpu")).partition(":")[0]
    return {**config, "device": device, "compiled": same and config.get("compiled", False)}


def device_here(folder: str | Path, named: str | None) -> str | None:
    """Returns the device that a run's policy is loaded on: the named one, the CPU, with a warning, where the run had a
    GPU and this machine has none, or None for the run's own.
    """
    path = Path(folder) / "config.json"
    if named is not None or not path.is_file() or torch.cuda.is_available():
        return named
    own = str(read_config(path).get("device", "cpu"))
    if own.partition(":")[0] != GPU:
        return None
    warn(f"{folder} was trained on '{own}', which is not here: the CPU is used")
    return "cpu"


def has_half(device: str) -> bool:
    """Returns whether a GPU computes in bfloat16; a device that is not there is refused later."""
    return not torch.cuda.is_available() or torch.cuda.is_bf16_supported(including_emulation=False)


def is_adapted(model: str | None, options: RunOptions, settings: Mapping[str, Any]) -> bool:
    """Returns whether low-rank adapters are trained: by an option, a setting, or since the model is one."""
    ranks = [value for path, value in settings.items() if path.split(".")[-1] == "rank"]
    is_saved = model is not None and bool(adapter_settings(Path(model).expanduser()))
    return bool(options.language.lora_rank) or any(str(value) != "0" for value in ranks) or is_saved


def dtype_of(options: RunOptions, settings: Mapping[str, Any]) -> str | None:
    """Returns the dtype that the user named, by --dtype or --set; None without one."""
    named = [str(value) for path, value in settings.items() if path.split(".")[-1] == "dtype"]
    return next(reversed(named), options.language.dtype)


def words(model: str | None, placement: Placement, options: RunOptions, settings: Mapping[str, Any]) -> list[str]:
    """Returns the words of a command line that repeats these choices, whatever would be chosen by default."""
    found = ["--compiled"] * placement.compiled
    if has_defaults(model, placement):
        found = found or ["--no-compiled"]
        found += ["--dtype", FULL] if dtype_of(options, settings) is None else []
    return found


def describe_precision(model: str | None, engine: Engine) -> str:
    """Returns a sentence on what a pretrained model on a GPU computes with; "" for other runs."""
    placement = engine.placement
    if model is None or not placement.is_on_gpu:
        return ""
    folder, is_warm = compiled_before()
    state = "warm" if is_warm else "empty, so that the first steps wait for the compiler"
    layers = f"layers compiled (cache {shortened(folder)}: {state})" if placement.compiled else "layers not compiled"
    dtype = str(next(engine.models["actor"].parameters()).dtype).removeprefix("torch.")
    weights = f"{dtype} with float32 master weights" if dtype == HALF else dtype
    rows = "packed rows" if engine.split is by_reach else "padded rows"
    kernels = ", deterministic kernels" if placement.deterministic else ""
    name = torch.cuda.get_device_name(placement.device)
    return f"{placement.device}: {name}, {weights}, {layers}, {rows}{kernels}; change with {CHANGES}"


def shortened(folder: str) -> str:
    """Returns a path with ~ for the home directory; torch's default without one."""
    try:
        return f"~/{Path(folder).relative_to(Path.home())}" if folder else "of torch"
    except (ValueError, RuntimeError):
        return folder
