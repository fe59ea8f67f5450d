"""Architectures of transformers, tiny and random: the sampler, padded and packed scores give the log-probabilities of
the network's own forward pass, in texts longer than any window.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay import recipes
from assay.core.record import Experience, Need
from assay.core.spaces import Spec, Vocabulary
from assay.decoding import decode, fast
from assay.decoding.fast import sampled
from assay.decoding.layers import stack_of
from assay.decoding.pages import Way
from assay.decoding.scheduler import Sampler
from assay.engine.loop import Loop
from assay.engine.placement import Placement, arrange
from assay.models.pretrained import description
from assay.models.pretrained.causal import PretrainedActor
from assay.rollouts import text
from assay.rollouts.completions import as_experience
from assay.runs import catalogue
from tests.optional import Optional

transformers = Optional("transformers")

WORDS = Vocabulary(50, pad=0, bos=1, eos=2)
SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 96, "initializer_range": 0.3, "vocab_size": 50,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
GEMMA = {"layer_types": MIXED, "sliding_window": 5, "query_pre_attn_scalar": 12}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "qwen3": ("Qwen3", {}),
    "gemma3": ("Gemma3Text", GEMMA),
    "gemma3 with capped logits": ("Gemma3Text", {**GEMMA, "final_logit_softcapping": 4.0}),
    "gemma2": ("Gemma2", {**GEMMA, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0}),
}
NORMED = {"num_local_experts": 4, "num_experts_per_tok": 2}
ARCHITECTURES |= {
    "mistral with a window": ("Mistral", {"sliding_window": 5}),
    "smollm3": ("SmolLM3", {"no_rope_layers": [1, 0, 1]}),
    "smollm3 with windows": (
        "SmolLM3",
        {"no_rope_layers": [1, 0, 1], "use_sliding_window": True, "sliding_window": 5, "layer_types": MIXED},
    ),
    "mixtral": ("Mixtral", {**NORMED, "sliding_window": 5}),
    "qwen3 moe": ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                               "norm_topk_prob": False, "mlp_only_layers": [1]}),
    "gpt-oss": ("GptOss", {**NORMED, "layer_types": MIXED, "sliding_window": 5}),
}  # fmt: skip
TURNS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 3.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
}
ARCHITECTURES |= {
    f"llama, {kind} angles": ("Llama", {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **more}})
    for kind, more in TURNS.items()
}
PROMPTS = [[1, *range(5, 14)], [1, 7], [1, *range(20, 33)], [1, *range(8, 14)]]
NEW = 16
LIMIT = torch.tensor([16, 9, 12, 16, 16, 3, 16, 14])
EVERYTHING = frozenset({Need.LOGP, Need.ENTROPY, Need.LOGITS, Need.HIDDEN})


@cache
def actor_of(name: str) -> Any:
    """Its norms' weights and sinks are not those of the start, so that none of them is without effect."""
    kind, settings = ARCHITECTURES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **settings})
    network = transformers.AutoModelForCausalLM.from_config(config).eval()
    for key, value in network.named_parameters():
        if value.dim() == 1:
            value.data.add_(0.3 * torch.randn(value.shape))
            assert "inv_freq" not in key
    return PretrainedActor(WORDS, network)


@torch.no_grad()
def own_logp(actor: Any, tokens: list[int]) -> Tensor:
    """Log-probabilities [T - 1, V] after each token of one text, by the network alone."""
    logits = actor.network(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, :-1]
    return logits.div(actor.temperature).log_softmax(-1)


def batch_of(written: list[list[int]], whose: list[int]) -> Experience:
    batch = text.written([PROMPTS[prompt] for prompt in whose], written, torch.arange(len(whose)), WORDS.pad)
    return replace(batch, group=torch.tensor(whose))


@cache
def written_by(name: str, rows: int, pages: int) -> tuple[list[list[int]], list[Tensor]]:
    """Two samples of each prompt by the sampler: tokens and log-probabilities."""
    stack = stack_of(actor_of(name))
    assert stack is not None
    one = Sampler(stack, rows=rows, pages=pages, longest=40, page=4, interval=3)
    uniform = torch.rand(8, NEW, generator=torch.Generator().manual_seed(1))
    found = one.sample(PROMPTS, [2] * 4, uniform, LIMIT, Way(-1))
    assert len(one.ledger.free) == pages - 1
    ends = found.length.tolist()
    return ([row[:end].tolist() for row, end in zip(found.tokens, ends, strict=True)],
            [row[:end] for row, end in zip(found.logp, ends, strict=True)])  # fmt: skip


# rows, pages: all at once; rows that wait and lose their pages
@pytest.mark.parametrize(("rows", "pages"), [(8, 99), (3, 22)])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_sampler_gives_the_networks_own_log_probabilities(name: str, rows: int, pages: int) -> None:
    actor, (tokens, logp) = actor_of(name), written_by(name, rows, pages)
    for row, (own, mine) in enumerate(zip(tokens, logp, strict=True)):
        prompt = PROMPTS[row // 2]
        expected = own_logp(actor, prompt + own)[len(prompt) - 1 :].gather(1, torch.tensor(own).unsqueeze(1))
        torch.testing.assert_close(mine, expected.squeeze(1), atol=1e-4, rtol=0)
    assert len({tuple(own) for own in tokens}) == 8
    assert tokens == written_by(name, 8, 99)[0], "who waits changes no token"


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_scores_of_padded_and_packed_rows_are_the_networks_own(name: str, is_packed: bool) -> None:
    actor = actor_of(name)
    tokens, _ = written_by(name, 8, 99)
    batch = batch_of(tokens, [row // 2 for row in range(8)])
    assert not is_packed or actor.pack()
    try:
        scored = actor.score(batch, EVERYTHING).logp
    finally:
        actor.is_packed = False
    for row, own in enumerate(tokens):
        prompt = PROMPTS[row // 2]
        expected = own_logp(actor, prompt + own)[len(prompt) - 1 :].gather(1, torch.tensor(own).unsqueeze(1))
        torch.testing.assert_close(scored[row][batch.mask[row]], expected.squeeze(1), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gradients_of_packed_rows_are_those_of_padded_ones(name: str) -> None:
    actor, found = actor_of(name), []
    batch = batch_of(written_by(name, 8, 99)[0], [row // 2 for row in range(8)])
    weight = torch.linspace(-1.0, 1.0, batch.mask.numel()).view(batch.mask.shape)
    for is_packed in (False, actor.pack()):
        actor.is_packed = is_packed
        loss = (actor.score(batch, EVERYTHING).logp * weight).sum()
        found.append(torch.autograd.grad(loss, list(actor.parameters())))
    actor.is_packed = False
    for one, other in zip(*found, strict=True):
        assert float((one - other).norm()) <= 1e-4 * max(1.0, float(one.norm()))


@torch.no_grad()
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_left_padded_decoding_by_the_networks_own_cache_is_the_same(name: str) -> None:
    actor = actor_of(name)
    decoder = actor.decoder(PROMPTS, [1] * 4, 2)
    first = decoder.logits().log_softmax(-1)
    decoder.push(torch.tensor([9, 8, 7, 6]))
    for row, prompt in enumerate(PROMPTS):
        own = own_logp(actor, [*prompt, 9 - row, 3])[-2:]
        torch.testing.assert_close(first[row], own[0], atol=1e-4, rtol=0)
        torch.testing.assert_close(decoder.logits().log_softmax(-1)[row], own[1], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96}, "gpt2"),
        ("Qwen3", {"hidden_act": "relu"}, "relu"),
        ("Llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "dynamic"),
        ("Gemma3Text", {**GEMMA, "use_bidirectional_attention": True}, "causal"),
    ],
)
def test_one_line_says_why_a_network_is_decoded_by_its_own_cache(kind: str, settings: dict[str, Any], why: str) -> None:
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **settings})
    actor = PretrainedActor(WORDS, transformers.AutoModelForCausalLM.from_config(config).eval())
    with pytest.warns(UserWarning, match=f"decoded by its own cache.*{why}"):
        assert sampled(actor, PROMPTS, [1] * 4, None, WORDS, 3) is None


# ---------------------------------------------------------------------------------------------------------- experts
EXPERTS = ["mixtral", "qwen3 moe", "gpt-oss"]


def noted(actor: Any, tokens: list[int]) -> Tensor:
    """The experts that the network itself chooses for one text, [T, L * K]."""
    found: list[Tensor] = []
    routers = [one.router for layer in actor.network.model.layers if (one := description.experts_of(layer.mlp))]
    handles = [one.register_forward_hook(lambda module, args, out: found.append(out[2])) for one in routers]
    own_logp(actor, tokens)
    for handle in handles:
        handle.remove()
    return torch.cat(found, 1)


@cache
def recorded(name: str) -> Experience:
    """Samples with the experts that their tokens chose; rows wait, so that some tokens are read twice."""
    stack = stack_of(actor_of(name))
    assert stack is not None
    one = Sampler(stack, rows=3, pages=22, longest=40, page=4, interval=3)
    uniform = torch.rand(8, NEW, generator=torch.Generator().manual_seed(1))
    found = one.sample(PROMPTS, [2] * 4, uniform, LIMIT, Way(-1))
    whose = [row // 2 for row in range(8)]
    starts = np.array(whose)
    return as_experience([PROMPTS[one] for one in whose], found, WORDS, starts, np.arange(8))


@pytest.mark.parametrize("name", EXPERTS)
def test_the_experts_that_sampled_tokens_chose_are_recorded(name: str) -> None:
    batch = recorded(name)
    for row in range(8):
        tokens = batch.context["tokens"][row, batch.context["valid"][row]].tolist()
        own = noted(actor_of(name), tokens)
        many = len(tokens) - 1  # the last token is never read
        found = batch.column("experts")[row]
        assert found[:many].sort(1).values.tolist() == (own[:many] + 1).sort(1).values.tolist()
        assert not found[many:].any(), "padding is no choice"


def forced(actor: Any, tokens: list[int], chosen: Tensor) -> Tensor:
    """Log-probabilities [T - 1, V] of one text by the network alone, its routers written anew around these choices."""
    first = 0
    for layer in actor.network.model.layers:
        experts = description.experts_of(layer.mlp)
        if experts is not None:
            own = chosen[:, first : first + 2].long() - 1

            def route(state: Tensor, own: Tensor = own, experts: Any = experts) -> tuple[Tensor, Tensor, Tensor]:
                router = experts.router
                logits = torch.nn.functional.linear(
                    state.view(-1, state.shape[-1]), router.weight, getattr(router, "bias", None)
                )
                allowed = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, own, True)
                if experts.is_normalised:
                    logits = logits.masked_fill(~allowed, -torch.inf)
                return logits, logits.softmax(-1).gather(1, own), own

            experts.router.forward = route
            first += 2
    try:
        return own_logp(actor, tokens)
    finally:
        for layer in actor.network.model.layers:
            experts = description.experts_of(layer.mlp)
            if experts is not None:
                del experts.router.forward


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("name", EXPERTS)
def test_the_update_uses_the_recorded_experts_whatever_the_router_would_choose(name: str, is_packed: bool) -> None:
    actor, batch = actor_of(name), recorded(name)
    assert not is_packed or actor.pack()
    plain = actor.score(replace(batch, extra={}), EVERYTHING).logp.detach()
    replayed = actor.score(batch, EVERYTHING).logp
    torch.testing.assert_close(replayed, plain, atol=1e-5, rtol=0)
    time = torch.arange(batch.num_columns)
    pair = torch.stack((1 + time % 2, 3 + time // 2 % 2), 1)  # chosen by nothing but time
    other = (batch.column("experts") > 0) * pair.repeat(1, batch.column("experts").shape[2] // 2)
    found = actor.score(batch.add({"experts": other.short()}), EVERYTHING).logp.detach()
    for row in range(8):
        tokens = batch.context["tokens"][row, batch.context["valid"][row]].tolist()
        chosen = other[row, : len(tokens)].clone()
        chosen[-1] = chosen[0]  # of the last token, which nothing reads
        expected = forced(actor, tokens, chosen).gather(1, torch.tensor(tokens[1:]).unsqueeze(1)).squeeze(1)
        own = batch.mask[row, 1 : len(tokens)]
        torch.testing.assert_close(found[row, 1 : len(tokens)][own], expected[own], atol=1e-4, rtol=0)
    assert float((found - plain).abs().max()) > 0.01
    actor.is_packed = False


@pytest.mark.parametrize("name", EXPERTS)
def test_layers_that_run_again_have_the_recorded_experts_and_a_reference_its_own(name: str) -> None:
    actor, batch = copy.deepcopy(actor_of(name)), recorded(name)
    other = (batch.column("experts") > 0) * torch.tensor([1, 3]).repeat(batch.column("experts").shape[2] // 2)
    moved, found = batch.add({"experts": other.short()}), []
    for recompute in (False, True):
        arrange(actor, Placement(recompute=recompute))
        scored = actor.score(moved, EVERYTHING).logp
        slopes = torch.autograd.grad((scored * moved.mask).sum(), list(actor.parameters()), materialize_grads=True)
        found.append([scored.detach(), *slopes])
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)
    reference = actor.requires_grad_(False)
    torch.testing.assert_close(
        reference.score(moved, EVERYTHING).logp, reference.score(batch, EVERYTHING).logp, atol=1e-5, rtol=0
    )


@torch.no_grad()
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_in_bfloat16_samples_are_as_near_to_scores_as_its_digits(name: str) -> None:
    """With the experts that were chosen, without which a token may be anywhere."""
    actor = copy.deepcopy(actor_of(name)).to(torch.bfloat16)
    stack = stack_of(actor)
    assert stack is not None
    one = Sampler(stack, rows=8, pages=99, longest=40, page=4)
    uniform, whose = torch.rand(8, NEW, generator=torch.Generator().manual_seed(1)), [row // 2 for row in range(8)]
    found = one.sample(PROMPTS, [2] * 4, uniform, LIMIT, Way(-1))
    batch = as_experience([PROMPTS[one] for one in whose], found, WORDS, np.array(whose), np.arange(8))
    gap = (actor.score(batch, EVERYTHING).logp - batch.logp)[batch.mask].abs()
    assert float(gap.mean()) < 0.05


@dataclass(frozen=True)
class Tiny:
    """A network with experts as an actor of a task."""

    def build(self, spec: Spec) -> nn.Module:
        """With the task's words."""
        assert isinstance(spec.action, Vocabulary)
        torch.manual_seed(0)
        config = transformers.MixtralConfig(**{**SIZES, **NORMED, "vocab_size": spec.action.size})
        return PretrainedActor(spec.action, transformers.AutoModelForCausalLM.from_config(config).eval())


def test_a_run_records_experts_and_trains_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def sampler_for(actor: Any, prompts: Any, repeats: Any, longest: int) -> Sampler:
        stack = stack_of(actor)
        assert stack is not None
        return Sampler(stack, rows=8, pages=400, longest=longest + max(map(len, prompts)), page=4)

    given: list[Tensor | None] = []
    choices = PretrainedActor.choices

    def watched(actor: Any, batch: Experience) -> Tensor | None:
        given.append(choices(actor, batch))
        return given[-1]

    monkeypatch.setattr(fast, "sampler_for", sampler_for)
    monkeypatch.setattr(decode, "is_on_gpu", lambda actor: True)
    monkeypatch.setattr(PretrainedActor, "choices", watched)
    loop = Loop(replace(recipes.grpo(), actor=Tiny()), catalogue.find_task("countdown"), seed=0, num_steps=2)
    assert not loop.step().alarms
    assert given
    assert all(one is not None and bool((one > 0).any()) for one in given)
