"""One GRPO step on one GPU, our side: `Loop.step` with the base grpo, and the work that it does."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.slots import Rollout, Scene
from benchmarks.gpu_work import Size, even_share, network, peak, prompt_text, reset_peak, seconds


@dataclass(frozen=True)
class Random:
    """The network as an actor; with a rank of low-rank adapters, only these are trained."""

    size: Size
    rank: int = 0

    def build(self, spec: Any) -> nn.Module:
        """Without the checks of a folder: there is none."""
        from assay.models.pretrained.adapters import Lora
        from assay.models.pretrained.causal import PretrainedActor

        made = network(self.size, torch.bfloat16)
        return PretrainedActor(spec.action, Lora(self.rank).attach(made) if self.rank else made)


@dataclass(frozen=True)
class Words:
    """A tokenizer whose words are numbers; its end token is none of the vocabulary, so that lengths are as given."""

    size: int

    @property
    def vocabulary(self) -> Any:
        """The end token is one that the policy cannot choose."""
        from assay.core.spaces import Vocabulary

        return Vocabulary(self.size, pad=0, bos=1, eos=self.size)

    def encode(self, text: str) -> list[int]:
        """w7 -> 7."""
        return [int(word[1:]) for word in text.split()]

    def decode(self, ids: Any) -> str:
        """7 -> w7."""
        words = all_words(self.size)
        return " ".join([words[token] for token in (ids.tolist() if isinstance(ids, Tensor) else ids)])


@cache
def all_words(size: int) -> tuple[str, ...]:
    """Of the vocabulary and its end token, made once: 262,144 tokens are decoded in a step."""
    return tuple(f"w{token}" for token in range(size + 1))


@dataclass(frozen=True)
class Parity:
    """Random prompts; the score is the share of even tokens."""

    size: Size

    def item(self, ordinal: int, split: int) -> Any:
        """Random words after the first."""
        from assay.tasks.language.items import Item

        return Item(prompt_text(self.size, ordinal), "", "")

    def verify(self, item: Any, completion: str) -> Any:
        """Share of even words."""
        from assay.core.record import Score

        return Score(even_share(completion))


@dataclass(frozen=True)
class Lengths(Rollout):
    """A rollout like Episodes whose rows have given lengths; keys and values take at most `cache` GiB (0: as many as
    all rows need at once), and rows that find no room in it wait, or give way and are read again.
    """

    size: Size
    case: str
    cache: float = 0.0

    def init(self, scene: Scene) -> dict[str, Any]:
        """The sampler, made when it is first needed."""
        return {}

    @property
    def num_starts(self) -> int:
        """All prompts."""
        return self.size.prompts

    def __call__(self, scene: Scene, state: dict[str, Any]) -> Any:
        """Samples and records."""
        from assay.decoding.fast import on_the_host
        from assay.decoding.pages import Way
        from assay.ops import random
        from assay.rollouts.completions import as_experience
        from assay.tasks.language.prompts import prompt_ids

        task: Any = scene.task
        actor, starts, draw = scene.actor, scene.starts, scene.draw
        size, limit = self.size, torch.from_numpy(self.size.lengths(self.case))
        if "sampler" not in state:
            state["sampler"] = sampler_of(actor, size, limit, self.cache)
        rows, samples = np.repeat(starts, size.samples), np.tile(np.arange(size.samples), len(starts))
        times = np.arange(int(limit.max()))[None]
        uniform = random.as_open_float32(random.uniform(draw, rows[:, None], samples[:, None], times))
        prompts = [prompt_ids(task.tokenizer, item.prompt, task.max_prompt) for item in task.items_of(starts, 0)]
        found = state["sampler"].sample(prompts, [size.samples] * len(prompts), uniform, limit, Way(size.words))
        found = on_the_host(found, 0)
        state["sampler"].release()
        state["peak"] = peak()
        reset_peak()
        whole = [prompt for prompt in prompts for _ in range(size.samples)]
        played = as_experience(whole, found, task.tokenizer.vocabulary, rows, samples)
        return played.add({"split": torch.zeros(len(rows), dtype=torch.int64)})


def sampler_of(actor: Any, size: Size, limit: Tensor, cache: float) -> Any:
    """With pages for all rows at once, or as many as the cache may have."""
    from assay.decoding.layers import stack_of
    from assay.decoding.scheduler import Sampler

    page, ahead = 64, 16
    pages = 2 + size.prompts * -(-size.prompt // page) + int(((limit + ahead - 1) // page + 1).sum())
    if cache:
        pages = min(pages, int(cache * 2**30 / (page * cache_bytes(size))))
    longest = size.prompt + int(limit.max())
    return Sampler(stack_of(actor), rows=len(limit), pages=pages, longest=longest, page=page)  # type: ignore[arg-type]


def cache_bytes(size: Size) -> int:
    """Of the keys and values of one token, two bytes each."""
    return int(4 * size.shape["num_hidden_layers"] * size.shape["num_key_value_heads"] * size.shape["head_dim"])


def loop_of(case: str, size: Size, where: Any, cache: float = 0.0, rank: int = 0) -> Any:
    """The base grpo on this task; `rank` as `Random` has it."""
    from assay import recipes
    from assay.core.optimizers import Adam
    from assay.engine.loop import Loop
    from assay.parts.sources.fresh import FreshSequences
    from assay.tasks.language.prompts import PromptTask

    base = recipes.grpo()
    stage = replace(base.stages[0], optimizer=Adam(1e-6))
    actor, rollout = Random(size, rank), Lengths(size, case, cache)
    recipe = replace(base, actor=actor, rollout=rollout, source=FreshSequences(), stages=(stage,))
    task = PromptTask("parity", Parity(size), Words(size.words), size.prompt, int(size.lengths(case).max()))
    return Loop(recipe, task, seed=0, num_steps=100, placement=where)


def ours(case: str, size: Size, steps: int, where: Any, cache: float, rank: int) -> dict[str, Any]:
    """Seconds and peak memory of each phase of each step, its work, and a scoring pass by itself."""
    from assay.core.record import Need

    loop = loop_of(case, size, where, cache, rank)
    found: dict[str, list[float]] = {"decode": [], "update": [], "rest": [], "whole step": [], "score": []}
    alarms: list[str] = []
    peaks = []
    for number in range(steps + 1):
        reset_peak()
        before = seconds()
        step = loop.step()
        whole = seconds() - before
        peaks.append({"decode": loop.states["rollout"]["peak"], "update": peak()})
        alarms += [str(alarm) for alarm in step.alarms]
        before = seconds()
        assert step.fresh is not None
        with torch.no_grad():
            loop.engine.over("actor", step.fresh, lambda actor, part: actor.score(part, frozenset({Need.LOGP})).logp)
        if not number:
            found["first step"] = [whole]  # kernels and layers are compiled, or read from the cache of an earlier run
        else:
            found["score"].append(seconds() - before)
            found["decode"].append(step.seconds["sample"])
            found["update"].append(step.seconds["update"])
            found["whole step"].append(whole)
            found["rest"].append(whole - step.seconds["sample"] - step.seconds["update"])
        print(f"  step {number}: {whole:.2f} s {step.seconds} {peaks[-1]} GiB", file=sys.stderr, flush=True)
    responses = int(size.lengths(case).sum())
    return {
        "who": f"assay, adapters of rank {rank}" if rank else "assay", "case": case, "seconds": found,
        "response_tokens": responses, "peak_gib": max(max(some.values()) for some in peaks), "peak_gib_of": peaks[-1],
        "update_work": update_work(loop, step.fresh), "decode_work": decode_work(size, case),
        "decode_tokens_per_second": responses / statistics.median(found["decode"]), "alarms": sorted(set(alarms))[:3],
        "metrics": {name: value for name, value in step.metrics.items() if name in ("kl_to_old", "ratio")},
    }  # fmt: skip


def update_work(loop: Any, fresh: Any) -> dict[str, float]:
    """Tokens that go through the layers, and PFLOP of an update: six for each weight and token, fourteen for each pair
    of tokens that see each other, head and number of a head, eight for each number of the output layer and decision;
    two less for weights that are not trained.
    """
    from assay.ops import packing

    shape, tokens, pairs = loop.recipe.actor.size.shape, 0, 0.0
    for part in loop.engine.micro_batches(fresh, None):
        home = part.on_cpu
        if loop.actor.is_packed:
            pack = packing.packed(home.context["tokens"], home.mask, home.group)
            tokens += len(pack.token_N)
            num, num_keys = pack.begin.diff().double(), pack.begin_key.diff().double()
            pairs += float((num * (num_keys - num / 2)).sum())
        else:
            tokens += len(home) * (home.num_columns - 1)
            pairs += len(home) * (home.num_columns - 1) ** 2 / 2
    each = [value for layer in loop.actor.layers() for value in layer.parameters()]
    weights = sum((6.0 if value.requires_grad else 4.0) * value.numel() for value in each)
    output = 8.0 if loop.actor.network.get_output_embeddings().weight.requires_grad else 6.0
    heads = shape["num_hidden_layers"] * shape["num_attention_heads"] * shape["head_dim"]
    work = {
        "layers": weights * tokens, "attention": 14.0 * heads * pairs,
        "output": output * float(fresh.mask.sum()) * shape["vocab_size"] * shape["hidden_size"],
    }  # fmt: skip
    return {"tokens": tokens, **{f"{name}_pflop": value / 1e15 for name, value in work.items()}}


def decode_work(size: Size, case: str) -> dict[str, float]:
    """PFLOP and TB of sampling: every step reads the weights, the prompts' keys and values once for each group that is
    not done, and every row's own.
    """
    shape, lengths = size.shape, size.lengths(case)
    width, inner = shape["hidden_size"], shape["intermediate_size"]
    heads = (shape["num_attention_heads"] + shape["num_key_value_heads"]) * 2 * shape["head_dim"]
    weights = shape["num_hidden_layers"] * width * (heads + 3 * inner) + shape["vocab_size"] * width
    last = lengths.reshape(size.prompts, size.samples).max(1)
    own = float((lengths.astype(np.float64) ** 2 / 2).sum())
    read = 2.0 * weights * lengths.max() + cache_bytes(size) * (own + float(last.sum()) * size.prompt)
    return {"pflop": 2.0 * weights * float(lengths.sum() + size.prompts * size.prompt) / 1e15, "tb": read / 1e12}
