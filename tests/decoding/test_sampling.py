"""The paged sampler: the text and log-probabilities of decoding by the actor's own cache, whoever else decodes."""

from __future__ import annotations

import copy
import gc
from itertools import count
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Need
from assay.decoding import kernels
from assay.decoding.fast import sampled
from assay.decoding.kernels import Seen
from assay.decoding.layers import products, stack_of
from assay.decoding.pages import Way
from assay.decoding.scheduler import Sampler
from assay.decoding.sessions import Session
from assay.models.bodies.transformer import Transformer
from assay.models.heads.categorical import Categorical
from assay.models.model import Policy
from assay.ops import random
from assay.ops.attention import Attention
from assay.rollouts.completions import complete
from assay.runs import catalogue

TASK = catalogue.find_task("addition-1")
WORDS: Any = TASK.spec.action
NEW, MEMBERS = 20, 4
STARTS, SAMPLES = np.repeat(np.arange(6), MEMBERS), np.tile(np.arange(MEMBERS), 6)
PROMPTS = [
    [WORDS.bos, *(3 + (7 * start + 5 * place) % (WORDS.size - 3) for place in range(2 + start))] for start in range(6)
]
UNIFORM = random.as_open_float32(random.uniform(Draw(3), STARTS[:, None], SAMPLES[:, None], np.arange(NEW)[None]))
LIMIT, WAY = torch.full((24,), NEW), Way(WORDS.eos)


def small_actor() -> Any:
    torch.manual_seed(0)
    return Policy(Transformer(width=32, layers=2, heads=2)).build(TASK.spec).double()


def decoded(actor: Any, greedy: bool = False) -> Experience:
    """By the actor's own cache."""
    prompts = [PROMPTS[start] for start in STARTS]
    return complete(actor, prompts, STARTS, SAMPLES, Draw(3), max_tokens=NEW, vocabulary=WORDS, greedy=greedy)


def sampler(actor: Any, rows: int = 24, pages: int = 200, interval: int = 16) -> Sampler:
    stack = stack_of(actor)
    assert stack is not None
    return Sampler(stack, rows=rows, pages=pages, longest=40, page=4, interval=interval)


# rows, pages, interval: all at once; looked after often; few places (rows wait); few pages (rows give way)
SIZES = [(24, 200, 16), (24, 200, 3), (5, 60, 4), (24, 40, 5)]


@pytest.mark.parametrize(("rows", "pages", "interval"), SIZES)
def test_text_and_log_probabilities_do_not_depend_on_who_decodes_beside(rows: int, pages: int, interval: int) -> None:
    actor = small_actor()
    one = sampler(actor, rows, pages, interval)
    tokens, logp, length, *_ = one.sample(PROMPTS, [MEMBERS] * 6, UNIFORM, LIMIT, WAY)
    expected = decoded(actor)
    for row in range(24):
        own = expected.mask[row]
        assert tokens[row, : length[row]].tolist() == expected.action[row][own].tolist()
        torch.testing.assert_close(logp[row, : length[row]].float(), expected.logp[row][own].float(), atol=1e-6, rtol=0)
    assert len(one.ledger.free) == pages - 1, "every page was given back"
    assert sorted(one.ledger.places) == list(range(rows))


@pytest.mark.parametrize(("rows", "pages", "interval"), SIZES)
def test_every_token_has_the_version_that_decided_it(rows: int, pages: int, interval: int) -> None:
    """A version allows one token alone, so that tokens tell what the versions must be."""
    actor, versions = small_actor(), count()

    def newest() -> int:
        version = next(versions)
        actor.forbidden.fill_(-1e9)[3 + version % (WORDS.size - 3)] = 0.0
        return version

    one = sampler(actor, rows, pages, interval)
    found = one.sample(PROMPTS, [MEMBERS] * 6, UNIFORM, LIMIT, WAY, newest=newest)
    with Session(one, newest) as session:
        again = session.sample(session.open(PROMPTS, [1] * 6), None, LIMIT[:6], WAY)
    for written in (found, again):
        assert written.version is not None
        assert torch.equal(written.tokens, 3 + written.version % (WORDS.size - 3))
        assert len(written.version[0].unique()) >= NEW // interval
    assert one.sample(PROMPTS, [MEMBERS] * 6, UNIFORM, LIMIT, WAY).version is None


def test_prompts_are_read_once_and_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    one, read = sampler(small_actor(), pages=200), []
    embed = one.stack.embed

    def counted(token_N: torch.Tensor) -> torch.Tensor:
        read.append(len(token_N))
        return embed(token_N)

    monkeypatch.setattr(one.stack, "embed", counted)
    one.sample(PROMPTS, [MEMBERS] * 6, UNIFORM, torch.ones_like(LIMIT), WAY)
    assert read[0] == sum(map(len, PROMPTS)), "24 rows have six prompts of 3 to 8 tokens"


def test_a_sampler_does_not_keep_its_actor() -> None:
    actor = small_actor()
    made, known = sampler(actor), ref(actor)
    made.sample(PROMPTS, [1] * 6, None, LIMIT[:6], WAY)
    del actor
    gc.collect()
    assert known() is None


def test_the_likeliest_tokens_are_those_of_the_actors_own_cache() -> None:
    actor = small_actor()
    tokens, _, length, *_ = sampler(actor).sample(PROMPTS, [1] * 6, None, LIMIT[:6], WAY)
    expected = decoded(actor, greedy=True)
    for row in range(6):
        own = expected.mask[MEMBERS * row]
        assert tokens[row, : length[row]].tolist() == expected.action[MEMBERS * row][own].tolist()


def test_recorded_log_probabilities_are_those_of_the_trainer() -> None:
    actor = small_actor()
    _, logp, length, *_ = sampler(actor).sample(PROMPTS, [MEMBERS] * 6, UNIFORM, LIMIT, WAY)
    expected = decoded(actor)
    scored = actor.score(expected, frozenset({Need.LOGP})).logp
    for row in range(24):
        torch.testing.assert_close(scored[row][expected.mask[row]], logp[row, : length[row]], atol=1e-9, rtol=0)


def test_a_sampler_is_used_again_and_each_result_has_its_own_limit() -> None:
    actor = small_actor()
    one = sampler(actor)
    limit = torch.arange(24) % 7 + 1
    first = one.sample(PROMPTS, [MEMBERS] * 6, UNIFORM, LIMIT, WAY)
    tokens, _, length, *_ = one.sample(PROMPTS, [MEMBERS] * 6, UNIFORM, limit, WAY)
    assert bool((length <= limit).all())
    for row in range(24):
        assert tokens[row, : length[row]].tolist() == first[0][row, : length[row]].tolist()


def test_released_memory_is_taken_again() -> None:
    actor = small_actor()
    one = sampler(actor)
    first = one.sample(PROMPTS, [MEMBERS] * 6, UNIFORM, LIMIT, WAY)
    actor.sampler.held = one
    actor.release()
    assert copy.deepcopy(actor).sampler.held is None, "a copy has a sampler of its own"
    assert not one.keys
    assert not one.values
    again = one.sample(PROMPTS, [MEMBERS] * 6, UNIFORM, LIMIT, WAY)
    assert all(torch.equal(mine, other) for mine, other in zip(again[:4], first[:4], strict=True))


def test_too_few_pages_are_refused() -> None:
    with pytest.raises(AssayError, match="too few pages for one prompt"):
        sampler(small_actor(), pages=2).sample(PROMPTS, [1] * 6, None, LIMIT[:6], WAY)
    one = sampler(small_actor(), pages=5)
    with pytest.raises(AssayError, match="too few pages for one row"):
        one.sample(PROMPTS[:2], [2] * 2, UNIFORM[:4], LIMIT[:4], Way(-1))
    assert len(one.ledger.free) == 4, "a call that failed gives back what it held"


def test_on_the_cpu_the_actors_own_cache_decodes() -> None:
    assert sampled(small_actor(), PROMPTS, [1] * 6, None, WORDS, NEW) is None


# ----------------------------------------------------------------------------------------------------- arithmetic
def test_attention_in_parts_is_attention() -> None:
    torch.manual_seed(1)
    query, keys, values = (torch.randn(shape, dtype=torch.float64) for shape in ((3, 4, 8), (9, 5, 2, 8), (9, 5, 2, 8)))
    table = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 0]])
    first, second = torch.tensor([0, 7, 15]), torch.tensor([3, 15, 1])
    parts = [kernels.attend_parts(query, keys, values, Seen(table[order], some, some), Attention(0.3))
             for order, some in (([0, 1, 2], first), ([2, 0, 1], second))]  # fmt: skip
    merged = kernels.merge(parts)
    for row, other in enumerate([2, 0, 1]):
        for head in range(4):
            chosen = [[some[table[who]].flatten(0, 1)[:num, head // 2] for some in (keys, values)]
                      for who, num in ((row, first[row]), (other, second[row]))]  # fmt: skip
            key, value = (torch.cat(some) for some in zip(*chosen, strict=True))
            expected = (0.3 * key @ query[row, head]).softmax(0) @ value
            torch.testing.assert_close(merged[row, head], expected)


def test_a_row_without_keys_is_zero_and_weighs_nothing() -> None:
    query, pages = torch.ones(1, 2, 4), torch.ones(2, 3, 2, 4)
    nothing = Seen(torch.tensor([[1]]), torch.tensor([0]), torch.tensor([0]))
    out, total = kernels.attend_parts(query, pages, pages, nothing, Attention(1.0))
    assert bool((out == 0).all())
    assert bool((total == -torch.inf).all())


def test_choosing_is_the_inverse_distribution_function() -> None:
    logits = torch.tensor([[0.0, 1.0, -2.0, 0.5]] * 999, dtype=torch.float64)
    uniform = (torch.arange(999, dtype=torch.float64) + 0.5) / 999
    token, logp = kernels.choose(logits, uniform)
    prob = logits[0].softmax(0)
    torch.testing.assert_close(torch.bincount(token, minlength=4).double() / 999, prob, atol=2e-3, rtol=0)
    torch.testing.assert_close(logp, prob.log()[token])
    assert bool((token.diff() >= 0).all())


# ------------------------------------------------------------------------------------------------- other networks
def network_of(kind: str) -> Any:
    library = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(2)
    sizes = {"vocab_size": 40, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8,
             "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 64}  # fmt: skip
    make = {"llama": ("LlamaConfig", "LlamaForCausalLM"), "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
            "qwen3": ("Qwen3Config", "Qwen3ForCausalLM")}[kind]  # fmt: skip
    if kind == "qwen2":
        sizes.pop("head_dim")
        sizes |= {"num_attention_heads": 3, "num_key_value_heads": 1}
    network = getattr(library, make[1])(getattr(library, make[0])(**sizes)).double().eval()
    for weight in network.parameters():
        weight.data.mul_(4.0 if weight.dim() == 2 else 1.0)
    return network


class Holder:
    """What a pretrained actor is to a sampler."""

    def __init__(self, network: Any) -> None:
        self.network, self.temperature = network, 1.0


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_networks_of_transformers_decode_as_generate_does(kind: str) -> None:
    network = network_of(kind)
    prompts = [[5, 6, 7], [8, 9, 10, 11, 12, 13], [30]]
    tokens, logp, length, *_ = sampler(Holder(network), pages=60).sample(prompts, [1] * 3, None, LIMIT[:3], Way(2))
    for row, prompt in enumerate(prompts):
        ids = torch.tensor([prompt])
        generated = network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False,
                                     eos_token_id=2, pad_token_id=0)[0, len(prompt):]  # fmt: skip
        mine = tokens[row, : length[row]]
        assert mine.tolist() == generated.tolist()
        whole = torch.cat([torch.tensor(prompt), mine])
        expected = network(whole.unsqueeze(0)).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
        torch.testing.assert_close(
            logp[row, : length[row]], expected.gather(1, mine.unsqueeze(1)).squeeze(1), atol=1e-6, rtol=0
        )


def test_matrices_that_follow_each_other_are_one_product() -> None:
    whole = torch.randn(12, 5, dtype=torch.float64)
    layers = []
    for begin, end in ((0, 6), (6, 9), (9, 12)):
        layer = torch.nn.Linear(5, end - begin, bias=False, dtype=torch.float64)
        layer.weight.data = whole[begin:end]
        layers.append(layer)
    state = torch.randn(4, 5, dtype=torch.float64)
    together, apart = products(state, *layers), [layer(state) for layer in layers]
    assert together[0].stride(0) == 12, "one product"
    for mine, other in zip(together, apart, strict=True):
        torch.testing.assert_close(mine, other)
    assert products(state, layers[0], layers[2])[0].stride(0) == 6, "they do not follow each other"


@torch.no_grad()
def test_a_policy_has_its_temperature_in_the_sampler_too() -> None:
    torch.manual_seed(0)
    actor: Any = Policy(Transformer(width=32, layers=2, heads=2), Categorical(0.3)).build(TASK.spec).double()
    actor.output.weight.data *= 20
    tokens, logp, length, *_ = sampler(actor).sample(PROMPTS, [MEMBERS] * 6, UNIFORM, LIMIT, WAY)
    cooled = decoded(actor)
    actor.temperature = 1.0
    warm = actor.score(cooled, frozenset({Need.LOGITS, Need.LOGP}))
    expected = (warm.logits / 0.3).log_softmax(-1).gather(-1, cooled.action.unsqueeze(-1)).squeeze(-1)
    for row in range(24):
        own = cooled.mask[row]
        assert tokens[row, : length[row]].tolist() == cooled.action[row][own].tolist()
        torch.testing.assert_close(logp[row, : length[row]].float(), expected[row][own].float(), atol=1e-5, rtol=0)
    assert float((warm.logp - expected)[cooled.mask].abs().max()) > 0.1
