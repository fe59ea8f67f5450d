"""A device for tests: tensors that say they are elsewhere, compute on the CPU and refuses to be mixed with its tensors.

So a path for GPUs is tried on a machine without one: a tensor that was left on the host, a read through numpy or an
index from the wrong side is an error here as there, and the numbers must be those of the CPU, bit for bit. What the
host waits for is counted in `WAITS`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "far:0"
ALONE = "ASSAY_FAR_DEVICE"
"""The environment variable of a process that may have the device: it stays registered, and torch then looks in other
places for what a device brings along, such as autocast. `tests/engine/test_devices.py` starts such processes.
"""
COPIES = ("_to_copy", "copy_", "_local_scalar_dense", "set_data")
"""Operations that may have tensors of both sides."""
WAITS: Counter[str] = Counter()


@cache
def register() -> bool:
    """Registers the device once a process that is its own; returns whether it is there."""
    if not os.environ.get(ALONE):
        return False
    try:
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
    except ImportError:
        return False
    _setup_privateuseone_for_python_backend("far")
    return True


def reading(name: str) -> Any:
    """Returns a method for which the host waits."""

    def read(self: Far) -> Any:
        WAITS[name] += 1
        return getattr(self.inner, name)()

    return read


class Far(torch.Tensor):
    """A tensor of the device around one of the CPU."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Far:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=torch.device(NAME), requires_grad=False,
        )  # fmt: skip
        made.inner = inner
        return made

    item, tolist, __bool__, __float__, __int__, __index__ = map(
        reading, ("item", "tolist", "__bool__", "__float__", "__int__", "__index__")
    )

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert a far tensor to numpy")

    @property
    def data(self) -> torch.Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Far) -> None:
        self.inner = value.inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


def near(value: Any) -> Any:
    """Returns a tree with the tensors of the CPU in place of the device's."""
    return tree_map(lambda one: one.inner if isinstance(one, Far) else one, value)


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Computes an operation on the CPU; its result is on the device if its inputs are, or if it is asked for."""
    name = func.overloadpacket.__name__
    tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    is_far = any(isinstance(one, Far) for one in tensors)
    left = [one for one in tensors if not isinstance(one, Far) and one.dim()]
    if is_far and left and name not in COPIES:
        raise RuntimeError(f"expected all tensors on one device: {func} of {[type(one).__name__ for one in tensors]}")
    wanted = kwargs.get("device")
    if wanted is not None:
        if is_far and torch.device(wanted).type == "cpu":
            WAITS["to the host"] += 1
        is_far = torch.device(wanted).type == "far"
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if name == "nonzero":
        WAITS[name] += is_far
    result = func(*near(args), **near(kwargs))
    if name.endswith("_") and not name.startswith("_") and isinstance(args[0], torch.Tensor):
        return args[0]
    return tree_map(lambda one: Far(one) if is_far and type(one) is torch.Tensor else one, result)


class Elsewhere(TorchDispatchMode):
    """Catches operations without a tensor of the device among their inputs, such as zeros(device=...)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


@contextmanager
def far_device() -> Iterator[str]:
    """Yields the name of the device, which works inside the block."""
    plain = torch.tensor

    def tensor(data: Any, *, device: Any = None, **more: Any) -> torch.Tensor:
        made = plain(data, **more)
        return made if device is None else made.to(device)

    autocast = torch.autocast

    def cast(kind: str, *words: Any, **more: Any) -> Any:
        return nullcontext() if kind == "far" else autocast(kind, *words, **more)

    WAITS.clear()
    with Elsewhere(), patch.object(torch, "tensor", tensor), patch.object(torch, "autocast", cast):
        yield NAME
