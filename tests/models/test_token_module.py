"""A module of one's own that reads tokens: sampled as it is scored, refused where it is not causal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.core.errors import AssayError
from assay.core.spaces import Spec, Vocabulary
from assay.models import Critic, Policy, TokenModule
from assay.recipes.presets import LANGUAGE
from assay.runs.user_code.body import with_body

TOKENS = Vocabulary(12, pad=0, bos=1, eos=2)
SPEC = Spec(TOKENS, TOKENS, 8)


class Recurrent(nn.Module):
    """A language model of a user: a state of each token."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(vocab_size, 8), nn.GRU(8, 8, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns [B, T, 8]."""
        found: Tensor = self.cell(self.embedding(tokens))[0]
        return found


class Peeking(Recurrent):
    """Sees the mean of all tokens, later ones too."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns [B, T, 8]."""
        seen: Tensor = self.embedding(tokens)
        return seen + seen.mean(1, keepdim=True)


class Dropping(Recurrent):
    """Drops units at random."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.drop = nn.Dropout(0.1)


class Pooled(Recurrent):
    """One state for the whole row."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns [B, 8]."""
        return super().forward(tokens)[:, -1]


def test_decoding_rows_of_unequal_length_gives_the_logits_of_the_whole_rows() -> None:
    actor: Any = Policy(TokenModule(Recurrent)).build(SPEC)
    decoder = actor.decoder([[1, 4, 5, 6], [1, 7]], [1, 2], 3)
    rows = [[1, 4, 5, 6], [1, 7], [1, 7]]
    for chosen in ([8, 9, 10], [11, 5, 4], None):
        for found, row in zip(decoder.logits(), rows, strict=True):
            assert torch.allclose(found, actor.logits(actor.trunk.net(torch.tensor([row]))[0, -1]), atol=1e-6)
        if chosen:
            decoder.push(torch.tensor(chosen))
            rows = [[*row, token] for row, token in zip(rows, chosen, strict=True)]
    decoder.keep(torch.tensor([2, 0]))
    whole = actor.logits(actor.trunk.net(torch.tensor([rows[2]]))[0, -1])
    assert torch.allclose(decoder.logits()[0], whole, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (Peeking, "Peeking is not causal"),
        (Dropping, r"Dropping drops units at random \(drop\)"),
        (Pooled, r"returned \(2, 8\) for tokens \[2, 6\]. Return a state of each token"),
        (lambda vocab_size: Recurrent(3), "cannot read tokens .* of a vocabulary of 12"),
        (lambda: 3, "made a int. It must be an nn.Module"),
    ],
)
def test_a_module_that_cannot_be_a_policy_is_refused_when_it_is_made(make: Any, match: str) -> None:
    with pytest.raises(AssayError, match=match):
        Policy(TokenModule(make)).build(SPEC)


def test_it_trains_in_the_place_of_the_transformer_of_actor_and_critic_and_is_resumed(tmp_path: Path) -> None:
    """Demonstrations fit better after the warm-up, and what was sampled is what is scored: the first ratio is 1."""
    critic = with_body(assay.recipes.ppo(LANGUAGE), f"{__name__}:Recurrent").critics["value"]
    assert isinstance(critic, Critic)
    assert isinstance(critic.body, TokenModule)
    folder = tmp_path / "run"
    options: dict[str, Any] = {"body": Recurrent, "prompts": 4, "eval_prompts": 8, "out": folder}
    run = assay.train("grpo", "addition-1", warmup=40, steps=1, **options)
    assert any(isinstance(one, Recurrent) for one in run.models["actor"].modules())
    lines = (folder / "phase-1-warmup" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss/LogLikelihood"] for line in lines[1:]]
    assert losses[-1] < losses[0] - 0.1
    assert run.curves[-1]["ratio"] == pytest.approx(1, abs=1e-4)
    assert assay.resume(folder, more_steps=1).curves[-1]["step"] == 2
    assert 0 < assay.evaluate(folder, starts=4).mean.count <= 4
