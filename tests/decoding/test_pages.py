"""How many pages a sampler gets."""

from __future__ import annotations

import warnings

import pytest

from assay.decoding.fast import pages_of


@pytest.mark.parametrize(("needed", "pages"), [(600, 600), (4, 8)])
def test_a_sampler_gets_what_it_needs_in_silence(needed: int, pages: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pages_of(needed, room=600) == pages


@pytest.mark.parametrize(("room", "pages"), [(599, 599), (0, 8)])
def test_a_sampler_that_lacks_memory_says_that_its_rows_wait(room: int, pages: int) -> None:
    with pytest.warns(UserWarning, match=f"has {pages} of 600 pages"):
        assert pages_of(600, room) == pages
