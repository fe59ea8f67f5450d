"""How many pages a sampler gets."""

from __future__ import annotations

import warnings

import pytest
import torch

from assay.core.errors import AssayError
from assay.decoding.fast import pages_of


@pytest.mark.parametrize(("needed", "pages"), [(600, 600), (4, 8)])
def test_a_sampler_gets_what_it_needs_in_silence(needed: int, pages: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pages_of(needed, room=600) == pages


@pytest.mark.parametrize(("room", "pages"), [(599, 599), (0, 8)])
def test_a_sampler_that_lacks_memory_says_that_its_rows_wait(
    room: int, pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: False)
    with pytest.warns(UserWarning, match=f"has {pages} of 600 pages"):
        assert pages_of(600, room) == pages


def test_a_deterministic_sampler_refuses_to_lack_memory() -> None:
    assert torch.are_deterministic_algorithms_enabled(), "as every test"
    assert pages_of(600, room=600) == 600
    with pytest.raises(AssayError, match=r"--deterministic: GPU memory is short, .* room for 599 of 600 pages"):
        pages_of(600, room=599)
