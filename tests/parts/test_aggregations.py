"""Averages over marked decisions or rows."""

from __future__ import annotations

import torch

from assay.claims import probes
from assay.parts import Among, SequenceMean, TokenMean


def test_decisions_of_either_kind_are_averaged_by_themselves() -> None:
    batch = probes.sequences()
    foreign = torch.zeros_like(batch.mask)
    foreign[::2, ::3] = True
    batch = batch.add({"foreign": foreign})
    theirs, ours = Among(), Among(TokenMean(), "foreign", holds=False)
    assert torch.equal(theirs.weigh(batch) > 0, batch.mask & foreign)
    assert torch.equal(theirs.weigh(batch) + ours.weigh(batch), TokenMean().weigh(batch))
    assert theirs.count(batch) == (batch.mask & foreign).sum()
    assert ours.count(batch) == (batch.mask & ~foreign).sum()


def test_rows_are_averaged_by_the_inner_aggregation() -> None:
    batch = probes.sequences()
    marked = torch.arange(len(batch)) % 2 == 0
    some = Among(SequenceMean(), "told")
    found = some.weigh(batch.add({"told": marked}))
    assert torch.equal(found[marked], SequenceMean().weigh(batch)[marked])
    assert not found[~marked].any()
    assert some.count(batch.add({"told": marked})) == (marked & batch.mask.any(1)).sum()
    assert some.count(batch) == 0
    assert Among(SequenceMean(), "told", holds=False).count(batch) == SequenceMean().count(batch)
