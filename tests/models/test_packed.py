"""Packed rows: scores and gradients of separate rows, whatever the rows, and only where the network allows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay import recipes
from assay.core.record import Experience, Need
from assay.core.spaces import Spec, Vocabulary
from assay.decoding.layers import stack_of
from assay.engine.batching import by_reach
from assay.engine.engine import Engine
from assay.engine.loop import Loop
from assay.engine.placement import Placement, arrange
from assay.models.pretrained.causal import PretrainedActor
from assay.ops import packing
from assay.rollouts import text
from assay.runs import catalogue
from tests.optional import Optional

transformers = Optional("transformers")

SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 96, "initializer_range": 0.3, "vocab_size": 50,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
WORDS = Vocabulary(50, pad=0, bos=1, eos=2)
ALL = frozenset({Need.LOGP, Need.ENTROPY, Need.LOGITS, Need.HIDDEN})


def network(kind: str = "Qwen3", **settings: Any) -> Any:
    """Tiny and random."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **settings})
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def rows() -> Experience:
    """Groups of 4, 2, 2 and 1; one row of the first has another prompt, one row is empty, one has a hole, one is cut
    after its first decision.
    """
    draw = torch.Generator().manual_seed(3)

    def some(num: int) -> list[int]:
        return torch.randint(3, 50, (num,), generator=draw).tolist()

    prompts = [some(6), some(4), some(5)]
    whose = [prompts[0], prompts[0], prompts[1], prompts[0], prompts[2], prompts[1], some(6), prompts[2], prompts[0]]
    batch = text.written(whose, [some(num) for num in (7, 1, 3, 12, 4, 2, 5, 6, 3)], torch.arange(9), 0)
    mask = batch.mask.clone()
    mask[4], mask[3, 8:11] = False, False
    return replace(batch, mask=mask, group=torch.tensor([0, 0, 1, 0, 2, 1, 0, 2, 5]))


def judged(actor: Any, batch: Experience) -> list[Tensor]:
    """Scores and the gradient of a loss on them."""
    found = actor.score(batch, ALL)
    weight = torch.linspace(-1.0, 1.0, batch.mask.numel()).view_as(batch.reward) * batch.mask
    loss = ((found.logp + 0.3 * found.entropy) * weight).sum() + found.hidden.square().sum() + found.logits.mean()
    trained = [value for value in actor.parameters() if value.requires_grad]
    slopes = torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True)
    return [some.detach() for some in (found.logp, found.entropy, found.logits, found.hidden, *slopes)]


def assert_same(actor: Any, batch: Experience) -> None:
    """Within 1e-5 of each tensor's norm."""
    actor.is_packed = False
    separate = judged(actor, batch)
    actor.is_packed = True
    for one, other in zip(separate, judged(actor, batch), strict=True):
        assert float((one - other).norm()) <= 1e-5 * max(1.0, float(one.norm()))


CUTS = {
    "all": slice(None), "one row": slice(0, 1), "a pair": slice(0, 2), "none shares": torch.tensor([6, 8, 2]),
    "nobody decides": slice(4, 5), "no rows": slice(0, 0), "last": torch.tensor([8, 7, 4, 3, 1, 0]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["Qwen3", "Llama"])
@pytest.mark.parametrize("cut", CUTS)
def test_scores_and_gradients_are_those_of_separate_rows(kind: str, cut: str) -> None:
    actor = PretrainedActor(WORDS, network(kind))
    assert actor.pack()
    assert_same(actor, rows().rows(CUTS[cut]))


def test_nothing_is_shared_without_groups() -> None:
    actor = PretrainedActor(WORDS, network())
    assert actor.pack()
    assert_same(actor, replace(rows(), group=None))


@pytest.mark.parametrize("placement", [Placement(recompute=True, packed=True), Placement(packed=True)])
def test_layers_that_run_again_do_the_same(placement: Placement) -> None:
    actor = PretrainedActor(WORDS, network())
    assert arrange(actor, placement)
    assert_same(actor, rows())


def test_rows_are_packed_by_themselves_only_where_there_is_a_kernel() -> None:
    actor = PretrainedActor(WORDS, network())
    assert not arrange(actor, Placement())
    assert not arrange(actor.to(torch.bfloat16), Placement())
    assert not actor.is_packed


def test_adapters_are_packed() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    inner = network()
    made = peft.get_peft_model(inner, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    with torch.no_grad():
        for name, value in made.named_parameters():
            if "lora_B" in name:
                value.normal_(std=0.1)
    actor = PretrainedActor(WORDS, inner)
    assert actor.pack()
    assert_same(actor, rows())


@pytest.mark.parametrize("kind", ["default", "linear", "dynamic"])
def test_positions_that_stretch_with_the_text_are_left_to_the_networks_own_cache(kind: str) -> None:
    turns = {"rope_type": kind, "rope_theta": 10_000.0, "factor": 2.0}
    found = stack_of(PretrainedActor(WORDS, network("Llama", rope_parameters=turns)))
    assert (found is None) == (kind == "dynamic"), "a row's angles would depend on its neighbours"


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("Phi3", {"sliding_window": 4}), ("Qwen3", {"attn_implementation": "eager"})],
)
def test_networks_with_another_attention_are_left_as_they_were(kind: str, settings: dict[str, Any]) -> None:
    actor = PretrainedActor(WORDS, network(kind, **settings))
    before, name = actor.score(rows(), ALL).logp, actor.network.config._attn_implementation
    with pytest.warns(UserWarning, match="rows are padded, not packed"):
        assert not actor.pack()
    assert actor.network.config._attn_implementation == name
    assert torch.equal(actor.score(rows(), ALL).logp, before)


def test_decoding_is_as_before() -> None:
    actor = PretrainedActor(WORDS, network())
    found = []
    for is_packed in (False, True):
        assert not is_packed or actor.pack()
        decoder = actor.decoder([[5, 6, 7], [8, 9]], [1, 2], 4)
        decoder.push(torch.tensor([3, 4, 5]))
        found.append(decoder.logits())
    assert torch.equal(*found)


# ------------------------------------------------------------------------------------------------ micro-batches
@pytest.mark.parametrize("together", [frozenset(), frozenset({"group"})])
@pytest.mark.parametrize(("tokens", "most"), [(1, 0), (12, 0), (20, 2), (30, 0), (999, 0)])
def test_every_row_once_and_packs_within_the_budget(together: frozenset[str], tokens: int, most: int) -> None:
    batch = rows()
    parts = by_reach(batch, together, tokens, most)
    assert sorted(torch.cat(parts).tolist()) == list(range(9))
    for part in parts:
        some = batch.rows(part)
        num_units = len(set(some.group.tolist())) if together else len(some)
        size = len(packing.packed(some.context["tokens"], some.mask, some.group).token_N)
        assert num_units == 1 or (size <= tokens and (not most or len(some) <= most))


@dataclass(frozen=True)
class Tiny:
    """The network as an actor of a task."""

    def build(self, spec: Spec) -> nn.Module:
        """With the task's words."""
        assert isinstance(spec.action, Vocabulary)
        return PretrainedActor(spec.action, network(vocab_size=spec.action.size))


def stepped(**placement: Any) -> Engine:
    task = catalogue.find_task("countdown")
    loop = Loop(replace(recipes.grpo(), actor=Tiny()), task, seed=0, num_steps=2, placement=Placement(**placement))
    assert not loop.step().alarms
    return loop.engine


@pytest.mark.parametrize("tokens", [0, 300])
def test_a_step_is_that_of_padded_rows(tokens: int) -> None:
    padded, packed = stepped(), stepped(tokens=tokens, packed=True)
    assert packed.split is by_reach
    (mine,), (theirs,) = (engine.optimizers["policy"]["first"] for engine in (padded, packed))
    assert float((mine - theirs).norm()) <= 1e-4 * float(mine.norm())


def test_columns_come_back_in_their_rows() -> None:
    task = catalogue.find_task("countdown")
    batch = task.demonstrate(torch.arange(20).numpy(), 0)
    found = [
        Engine(replace(recipes.grpo(), actor=Tiny()), task.spec, 0, Placement(tokens=tokens, packed=bool(tokens))).over(
            "actor", batch, lambda actor, part: actor.score(part, frozenset({Need.LOGP})).logp
        )
        for tokens in (0, 100)
    ]
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-5)


def test_a_record_that_moved_remembers_where_it_was() -> None:
    batch = rows()
    assert batch.on_cpu is batch
    moved = batch.to("meta")
    assert moved.on_cpu is batch
    assert "on_cpu" not in vars(moved.rows(slice(0, 2))), "other rows are another record"
