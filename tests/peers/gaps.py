"""How far two tensors are apart, in one number: what the tests of this folder assert and what docs/peers.md shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

LARGEST_GAP = 1e-5
Record = Callable[[str, object], None]
"""pytest's `record_property`: `--junitxml` writes the gaps down."""


def gap(ours: Tensor, theirs: Tensor) -> float:
    """Largest |ours - theirs| over the largest |theirs|; 0 where both are 0 everywhere."""
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    apart, size = (ours.detach().double() - theirs.detach().double()).abs().max(), theirs.detach().double().abs().max()
    return float(apart / size) if float(size) else float(apart)


def assert_equal(name: str, ours: Tensor, theirs: Tensor, record: Record, largest: float = LARGEST_GAP) -> None:
    """The two tensors are one, to `largest`; and theirs is not trivially nothing."""
    assert bool(torch.isfinite(theirs).all())
    assert bool((theirs != 0).any()), f"{name}: nothing to compare, theirs is 0 everywhere"
    found = gap(ours, theirs)
    record(name, f"{found:.1e}")
    assert found <= largest, f"{name}: {found:.3g} apart"


def assert_all_equal(
    name: str, ours: Mapping[str, Tensor], theirs: Mapping[str, Any], record: Record, largest: float = LARGEST_GAP
) -> None:
    """The same for tensors by name; the gap is over the largest number of all of them."""
    assert set(ours) == set(theirs)
    flat = [torch.cat([side[key].detach().reshape(-1) for key in sorted(theirs)]) for side in (ours, theirs)]
    assert_equal(name, flat[0], flat[1], record, largest)
