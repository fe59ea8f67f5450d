"""Log-probabilities with the output layer: those of log_softmax, by any blocks, with gradients that check."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.ops import output
from assay.ops.bfloat16 import prepare_bfloat16
from assay.ops.output import given_logp, word_blocks

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def inputs(num: int, width: int, words: int, dtype: torch.dtype, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, weights, tokens; logits of a few units."""
    draw = torch.Generator().manual_seed(num + words)
    hidden = torch.randn(num, width, generator=draw, dtype=torch.float64)
    weight = 2.0 * width**-0.5 * torch.randn(words, width, generator=draw, dtype=torch.float64)
    token = torch.randint(words, (num,), generator=draw)
    return hidden.to(device, dtype).requires_grad_(), weight.to(device, dtype).requires_grad_(), token.to(device)


def plain(hidden: Tensor, weight: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    """The definition."""
    log_prob = (hidden @ weight.t()).log_softmax(-1)
    return log_prob.gather(1, token.unsqueeze(1)).squeeze(1), -(log_prob.exp() * log_prob).sum(-1)


def slopes(function: object, given: tuple[Tensor, Tensor, Tensor], with_entropy: bool) -> list[Tensor]:
    """Log-probability, entropy, and the gradients of a loss with a slope of its own at every token."""
    logp, entropy = function(*given)  # type: ignore[operator]
    at = torch.arange(len(logp), dtype=torch.float64, device=logp.device)
    loss = (logp * torch.cos(at)).sum()
    if with_entropy:
        loss = loss + (entropy * torch.sin(3 * at)).sum()
    return [logp.detach(), entropy.detach() if with_entropy else logp.detach(), *torch.autograd.grad(loss, given[:2])]


@pytest.mark.parametrize("at_once", [1, 100, 1 << 24])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_it_is_log_softmax_whatever_the_blocks(
    at_once: int, with_entropy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "AT_ONCE", at_once)
    given = inputs(13, 6, 37, torch.float64)
    mine = slopes(lambda *some: given_logp(*some, with_entropy), given, with_entropy)
    for own, other in zip(mine, slopes(plain, given, with_entropy), strict=True):
        torch.testing.assert_close(own, other, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("with_entropy", [False, True])
def test_gradients_are_finite_differences(with_entropy: bool) -> None:
    hidden, weight, token = inputs(5, 4, 7, torch.float64)
    num = 1 + with_entropy
    assert torch.autograd.gradcheck(lambda h, w: given_logp(h, w, token, with_entropy)[:num], (hidden, weight))


def test_frozen_weights_cost_no_gradient_and_no_tokens_give_none() -> None:
    hidden, weight, token = inputs(5, 4, 7, torch.float32)
    given_logp(hidden, weight.detach(), token)[0].sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None
    logp, entropy = given_logp(hidden[:0], weight, token[:0])
    assert logp.shape == (0,)
    assert entropy is None


def test_low_precision_is_summed_in_float32() -> None:
    prepare_bfloat16()
    hidden, weight, token = inputs(40, 16, 300, torch.bfloat16)
    logp = given_logp(hidden, weight, token)[0]
    exact = plain(hidden.double(), weight.double(), token)[0]
    assert logp.dtype == torch.float32
    assert float((logp - exact).detach().abs().max()) < 0.05, "products in bfloat16 round the logits on a CPU"


@pytest.mark.parametrize("num", [1, 127, 128, 4096, 32_000, 49_152, 151_936])
def test_blocks_of_words_cover_the_vocabulary_once(num: int) -> None:
    blocks = word_blocks(num)
    assert [first for first, _ in blocks] == [0, *(last for _, last in blocks[:-1])]
    assert blocks[-1][1] == num
    assert all(0 < last - first <= 2 * output.BLOCK for first, last in blocks)


@on_gpu
@pytest.mark.parametrize(("num", "words"), [(1, 300), (200, 1000), (9000, 5000), (33_000, 4224)])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_on_a_gpu_it_is_the_same_in_bfloat16(num: int, words: int, with_entropy: bool) -> None:
    given = inputs(num, 128, words, torch.bfloat16, "cuda")
    exact = tuple(some.detach().double().requires_grad_() for some in given[:2])
    mine = slopes(lambda *some: given_logp(*some, with_entropy), given, with_entropy)
    theirs = slopes(plain, (*exact, given[2]), with_entropy)
    for own, other in zip(mine[:2], theirs[:2], strict=True):
        torch.testing.assert_close(own.double(), other, atol=2e-5, rtol=2e-5)
    for own, other in zip(mine[2:], theirs[2:], strict=True):
        assert float((own.double() - other).norm() / other.norm()) < 4e-3, "one rounding of slopes, one of results"
