"""Beam search of tokens: greedy at width one, exact when as wide as the vocabulary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw, Experience
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.playing.beam import BeamActor
from assay.tasks.language.addition import addition


def small_language_model() -> tuple[Any, Any]:
    task = addition(1)
    torch.manual_seed(3)
    actor = Policy(Transformer(16, 1, 2)).build(task.spec)
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return task, actor


def test_beam_search_of_tokens_is_greedy_at_width_one_and_finds_likelier_completions_when_wider() -> None:
    task, actor = small_language_model()
    starts, samples = np.arange(6), np.zeros(6, dtype=np.int64)
    vocabulary = task.spec.action

    def played(one: Any) -> Experience:
        return task.play(one, starts, samples, Draw(0), split=0, greedy=True)

    def likelihood(record: Experience) -> Tensor:
        with torch.no_grad():
            return actor.score(record, frozenset()).logp.sum(1)

    greedy, narrow, wide = (
        played(actor),
        played(BeamActor(actor, 1, vocabulary)),
        played(BeamActor(actor, 6, vocabulary)),
    )
    assert torch.equal(greedy.action, narrow.action)
    assert not narrow.logp.any()
    assert (likelihood(wide) >= likelihood(greedy) - 1e-4).double().mean() >= 0.5
    assert likelihood(wide).sum() > likelihood(greedy).sum()


def test_a_beam_as_wide_as_the_vocabulary_is_exact_for_two_tokens() -> None:
    task, actor = small_language_model()
    vocabulary = task.spec.action
    prompt = [vocabulary.bos, 5, 6]
    found = BeamActor(actor, vocabulary.size, vocabulary).search([prompt], 2)[0].tolist()
    decoder = actor.decoder([prompt], [vocabulary.size], 2)
    with torch.no_grad():
        first = decoder.logits()[0].log_softmax(-1)
        decoder.push(torch.arange(vocabulary.size))
        both = first.unsqueeze(1) + decoder.logits().log_softmax(-1)
    both[vocabulary.eos] = -math.inf
    both[vocabulary.eos, vocabulary.eos] = first[vocabulary.eos]
    assert found == [int(both.argmax()) // vocabulary.size, int(both.argmax()) % vocabulary.size]
