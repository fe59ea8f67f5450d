"""One GRPO step on one GPU: 64 prompts of 256 tokens x 8 samples, a Qwen3-0.6B with random weights, bfloat16.

(a) every response has 512 tokens; (b) lengths are drawn once from a log-normal (mean 512, at most 2,048). One update a
step, no reference model. Ours is `Loop.step` with the base grpo; the peer is TRL's GRPOTrainer with HF generate, where
it is installed. A last table has the log-probabilities of given tokens together with the output layer.

    python -m benchmarks.one_gpu                 # everything; tables, and JSON in --out
    python -m benchmarks.one_gpu logp a --steps 5
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PROMPTS, SAMPLES, PROMPT = 64, 8, 256
MEAN, MOST = 512, 2048
FLOPS, BYTES = 788e12, 4.3e12
"""A second, measured on an H200: bfloat16 products of large squares; bytes read and written by copies."""
SHAPE = {
    "vocab_size": 151_936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True,
    "max_position_embeddings": 40_960, "rope_theta": 1_000_000.0, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": None,
}  # fmt: skip
SMALL = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How much: the real thing, or a toy that runs on a CPU to see that everything works."""

    prompts: int = PROMPTS
    samples: int = SAMPLES
    prompt: int = PROMPT
    mean: int = MEAN
    most: int = MOST
    toy: bool = False

    @property
    def shape(self) -> dict[str, Any]:
        """Of the network."""
        return SHAPE | SMALL if self.toy else SHAPE

    @property
    def words(self) -> int:
        """Of the vocabulary."""
        return int(self.shape["vocab_size"])

    @property
    def device(self) -> str:
        """Toys run anywhere."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    def lengths(self, case: str) -> np.ndarray:
        """Response tokens of each row: the mean (a), or a log-normal with deviation 0.8 of the logarithm (b)."""
        num = self.prompts * self.samples
        if case == "a":
            return np.full(num, self.mean)
        drawn = np.random.default_rng(0).lognormal(math.log(self.mean) - 0.5 * 0.8**2, 0.8, num)
        drawn *= self.mean / drawn.clip(1, self.most).mean()
        return drawn.round().clip(1, self.most).astype(np.int64)


TOY = Size(4, 4, 16, 12, 40, toy=True)


def network(size: Size, dtype: torch.dtype) -> Any:
    """Random weights, from one seed."""
    from transformers import AutoModelForCausalLM, Qwen3Config

    torch.manual_seed(0)
    with torch.device(size.device):
        return AutoModelForCausalLM.from_config(Qwen3Config(**size.shape), dtype=dtype).eval()


# ---------------------------------------------------------------------------------------------------- ours
@dataclass(frozen=True)
class Random:
    """The network as an actor."""

    size: Size

    def build(self, spec: Any) -> nn.Module:
        """Without the checks of a folder: there is none."""
        from assay.backends.pretrained import PretrainedActor

        return PretrainedActor(spec.action, network(self.size, torch.bfloat16))


@dataclass(frozen=True)
class Words:
    """A tokenizer whose words are numbers; its end token is none of the vocabulary, so that lengths are as given."""

    size: int

    @property
    def vocabulary(self) -> Any:
        """The end token is one that the policy cannot choose."""
        from assay.types import Vocabulary

        return Vocabulary(self.size, pad=0, bos=1, eos=self.size)

    def encode(self, text: str) -> list[int]:
        """w7 -> 7."""
        return [int(word[1:]) for word in text.split()]

    def decode(self, ids: Any) -> str:
        """7 -> w7."""
        return " ".join(f"w{int(token)}" for token in ids)


@dataclass(frozen=True)
class Parity:
    """Random prompts; the score is the share of even tokens."""

    size: Size

    def item(self, ordinal: int, split: int) -> Any:
        """Random words after the first."""
        from assay.tasks.prompts import Item

        return Item(prompt_text(self.size, ordinal), "", "")

    def verify(self, item: Any, completion: str) -> Any:
        """Share of even words."""
        from assay.types import Score

        return Score(even_share(completion))


def prompt_text(size: Size, ordinal: int) -> str:
    """Words of prompt `ordinal`."""
    return " ".join(f"w{token}" for token in np.random.default_rng(ordinal).integers(2, size.words, size.prompt - 1))


def even_share(text: str) -> float:
    """Even words over all."""
    words = text.split()
    return sum(word[-1] in "02468" for word in words) / max(1, len(words))


@dataclass(frozen=True)
class Lengths:
    """A rollout like Episodes whose rows have given lengths; keys and values take at most `cache` GiB (0: as many as
    all rows need at once), and rows that find no room in it wait, or give way and are read again.
    """

    size: Size
    case: str
    cache: float = 0.0

    def init(self, task: Any) -> dict[str, Any]:
        """The sampler, made when it is first needed."""
        return {}

    @property
    def num_starts(self) -> int:
        """All prompts."""
        return self.size.prompts

    def __call__(self, task: Any, actor: Any, starts: np.ndarray, draw: Any, state: dict[str, Any]) -> Any:
        """Samples and records."""
        from assay.ops import random
        from assay.rollouts.completions import as_experience
        from assay.sampling import on_the_host
        from assay.sampling.pages import Way
        from assay.tasks.prompts import prompt_ids

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
    from assay.sampling.sampler import Sampler
    from assay.sampling.stacks import stack_of

    page, ahead = 64, 16
    pages = 2 + size.prompts * -(-size.prompt // page) + int(((limit + ahead - 1) // page + 1).sum())
    if cache:
        pages = min(pages, int(cache * 2**30 / (page * cache_bytes(size))))
    longest = size.prompt + int(limit.max())
    return Sampler(stack_of(actor), rows=len(limit), pages=pages, longest=longest, page=page)  # type: ignore[arg-type]


def cache_bytes(size: Size) -> int:
    """Of the keys and values of one token, two bytes each."""
    return int(4 * size.shape["num_hidden_layers"] * size.shape["num_key_value_heads"] * size.shape["head_dim"])


def loop_of(case: str, size: Size, where: Any, cache: float = 0.0) -> Any:
    """The base grpo on this task."""
    from assay import bases
    from assay.loop import Loop
    from assay.optimizers import Adam
    from assay.sources.fresh import FreshSequences
    from assay.tasks.prompts import PromptTask

    base = bases.grpo()
    stage = replace(base.stages[0], optimizer=Adam(1e-6))
    recipe = replace(
        base, actor=Random(size), rollout=Lengths(size, case, cache), source=FreshSequences(), stages=(stage,)
    )
    task = PromptTask("parity", Parity(size), Words(size.words), size.prompt, int(size.lengths(case).max()))
    return Loop(recipe, task, seed=0, num_steps=100, placement=where)


def ours(case: str, size: Size, steps: int, where: Any, cache: float) -> dict[str, Any]:
    """Seconds and peak memory of each phase of each step, its work, and a scoring pass by itself."""
    from assay.types import Need

    loop = loop_of(case, size, where, cache)
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
        if number:
            found["score"].append(seconds() - before)
            found["decode"].append(step.seconds["sample"])
            found["update"].append(step.seconds["update"])
            found["whole step"].append(whole)
            found["rest"].append(whole - step.seconds["sample"] - step.seconds["update"])
        print(f"  step {number}: {whole:.2f} s {step.seconds} {peaks[-1]} GiB", file=sys.stderr, flush=True)
    responses = int(size.lengths(case).sum())
    return {
        "who": "assay", "case": case, "seconds": found, "response_tokens": responses,
        "peak_gib": max(max(some.values()) for some in peaks), "peak_gib_of": peaks[-1],
        "update_work": update_work(loop, step.fresh), "decode_work": decode_work(size, case),
        "decode_tokens_per_second": responses / statistics.median(found["decode"]), "alarms": sorted(set(alarms))[:3],
        "metrics": {name: value for name, value in step.metrics.items() if name in ("kl_to_old", "ratio")},
    }  # fmt: skip


def update_work(loop: Any, fresh: Any) -> dict[str, float]:
    """Tokens that go through the layers, and PFLOP of an update: six for each weight and token, fourteen for each pair
    of tokens that see each other, head and number of a head, eight for each number of the output layer and decision.
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
    weights = sum(value.numel() for layer in loop.actor.layers() for value in layer.parameters())
    heads = shape["num_hidden_layers"] * shape["num_attention_heads"] * shape["head_dim"]
    work = {
        "layers": 6.0 * weights * tokens, "attention": 14.0 * heads * pairs,
        "output": 8.0 * float(fresh.mask.sum()) * shape["vocab_size"] * shape["hidden_size"],
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


def seconds() -> float:
    """The clock, when the device has done its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def reset_peak() -> None:
    """Memory is counted from here."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak() -> float:
    """GiB allocated at most."""
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


# ---------------------------------------------------------------------------------------------------- the peer
def peer(case: str, size: Size, steps: int) -> dict[str, Any]:
    """TRL's GRPOTrainer with HF generate; rows end where the table says."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LogitsProcessorList, PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    words = {f"w{token}": token for token in range(size.words - 2)} | {"<pad>": size.words - 2, "<eos>": size.words - 1}
    inner = Tokenizer(models.WordLevel(words, unk_token="w2"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")
    model = network(size, torch.bfloat16)
    limit = torch.from_numpy(size.lengths(case)).to(size.device)
    phases: dict[str, list[float]] = {"decode": [], "whole step": []}
    generate = model.generate

    def ended(ids: Tensor, scores: Tensor) -> Tensor:
        is_over = ids.shape[1] - size.prompt >= limit[: len(ids)] - 1
        eos = torch.arange(scores.shape[1], device=scores.device) == size.words - 1
        return scores.masked_fill(eos != is_over.unsqueeze(1), -torch.inf)

    def generated(*given: Any, **options: Any) -> Any:
        before = seconds()
        result = generate(*given, logits_processor=LogitsProcessorList([ended]), **options)
        phases["decode"].append(seconds() - before)
        return result

    model.generate = generated

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self.start = seconds()

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            phases["whole step"].append(seconds() - self.start)
            print(f"  TRL step: {phases['whole step'][-1]:.2f} s {peak():.1f} GiB", file=sys.stderr, flush=True)

    def reward(completions: list[str], **rest: Any) -> list[float]:
        return [even_share(completion) for completion in completions]

    small, most = (2, 8) if size.toy else (16, PROMPTS * SAMPLES // 16)
    prompts = [" ".join(["w1", prompt_text(size, ordinal)]) for ordinal in range(size.prompts * (steps + 1))]
    reset_peak()
    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=small, gradient_accumulation_steps=most,
            num_generations=size.samples, max_completion_length=int(limit.max()), beta=0.0, bf16=size.device == "cuda",
            learning_rate=1e-6, max_steps=steps + 1, report_to=[], save_strategy="no", loss_type="grpo",
            temperature=1.0, disable_tqdm=True, logging_strategy="no", use_cpu=size.device == "cpu",
            gradient_checkpointing=False,
        )  # fmt: skip
        data = Dataset.from_dict({"prompt": prompts})
        GRPOTrainer(
            model=model, reward_funcs=reward, args=settings, train_dataset=data, processing_class=tokenizer,
            callbacks=[Clock()],
        ).train()  # fmt: skip
    return {
        "who": "TRL", "case": case, "seconds": {name: some[1:] for name, some in phases.items()}, "peak_gib": peak(),
        "response_tokens": int(limit.sum()),
        "decode_tokens_per_second": int(limit.sum()) / statistics.median(phases["decode"][1:]),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------- the output layer
def naive(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """All logits at once, in float32."""
    return -nn.functional.cross_entropy((hidden @ weight.t()).float(), token, reduction="none")


def chunked(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """4,096 tokens at a time, made again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    chunks = zip(hidden.split(4096), token.split(4096), strict=True)
    return torch.cat([checkpoint(naive, some, weight, own, use_reentrant=False) for some, own in chunks])


def compiled(function: Any, hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """8,192 tokens at a time, by torch.compile."""
    chunks = zip(hidden.split(8192), token.split(8192), strict=True)
    return torch.cat([function(some, weight, own) for some, own in chunks])


def chunks_at_once(function: Any, hidden: Tensor, weight: Tensor, token: Tensor, slope: Tensor) -> None:
    """torch.compile with a slope that is known beforehand: each chunk's gradient before the next chunk's logits."""
    for some, own, part in zip(hidden.split(8192), token.split(8192), slope.split(8192), strict=True):
        (function(some, weight, own) * part).sum().backward()


def together(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """Ours."""
    from assay.ops.output import given_logp

    return given_logp(hidden, weight, token)[0]


def liger(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """Liger's fused linear cross entropy, the gradient of a known (equal) slope made in the forward pass."""
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    loss = LigerFusedLinearCrossEntropyFunction.apply(hidden, weight, token)
    return -(loss[0] if isinstance(loss, tuple) else loss) * len(token)


def logp_table(size: Size, repetitions: int = 5) -> list[dict[str, Any]]:
    """Milliseconds (median, range) and memory beside inputs of forward and backward, at 16k and 64k tokens."""
    device, words, width = size.device, size.words, int(size.shape["hidden_size"])
    weight = (0.02 * torch.randn(words, width, device=device)).bfloat16().requires_grad_()
    fast = torch.compile(naive) if not size.toy else naive
    rows = []
    for num in (16_384, 65_536) if not size.toy else (256, 512):
        hidden = torch.randn(num, width, device=device).bfloat16().requires_grad_()
        token, slope = torch.randint(words, (num,), device=device), torch.randn(num, device=device) / num
        known: Callable[..., None] = partial(chunks_at_once, fast, hidden, weight, token, slope)
        ways: dict[str, Callable[[], Any]] = {
            "naive": partial(naive, hidden, weight, token),
            "chunked": partial(chunked, hidden, weight, token),
            "torch.compile": partial(compiled, fast, hidden, weight, token),
            "torch.compile, known slope": known,
            "Liger, known slope": partial(liger, hidden, weight, token),
            "ours": partial(together, hidden, weight, token),
        }
        for name, way in ways.items():
            if num * words > 3e9 and name in ("naive", "torch.compile"):
                continue  # tens of GiB of logits
            rows.append({"tokens": num, "way": name} | timed(way, slope, (hidden, weight), repetitions))
            print(f"  {rows[-1]}", file=sys.stderr, flush=True)
    return rows


def timed(way: Callable[[], Any], slope: Tensor, leaves: Sequence[Tensor], repetitions: int) -> dict[str, Any]:
    """Forward and backward."""
    times: list[float] = []
    most = 0.0
    try:
        for number in range(repetitions + 2):
            for leaf in leaves:
                leaf.grad = None
            reset_peak()
            held = torch.cuda.memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
            before = seconds()
            result = way()
            if result is not None:
                (result * slope[: result.numel()] if result.dim() else result).sum().backward()
            if number > 1:
                times.append(1000.0 * (seconds() - before))
            most = max(most, peak() - held)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    finally:
        for leaf in leaves:
            leaf.grad = None
    return {"milliseconds": times, "gib": most}


# ---------------------------------------------------------------------------------------------------- tables
def middle(values: Sequence[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):8.2f} [{min(values):.2f}, {max(values):.2f}]" if values else "-"


def show(results: dict[str, Any]) -> None:
    """All tables, in plain text."""
    for case in ("a", "b"):
        for row in (row for row in results.get("steps", ()) if row["case"] == case):
            print(f"\n({case}) {row['who']}: {row.get('error', '')}")
            for name, values in row.get("seconds", {}).items():
                print(f"  {name:12} {middle(values)} s over {len(values)} steps")
            if "peak_gib" in row:
                rate = row["response_tokens"] / statistics.median(row["seconds"]["whole step"])
                print(f"  {row['decode_tokens_per_second']:.0f} tokens/s decoded, {rate:.0f} in the whole step")
                print(f"  peak memory {row['peak_gib']:.1f} GiB, {row.get('peak_gib_of', '')}")
            if "update_work" in row:
                print(limits(row))
    if "logp" in results:
        print("\nlog-probabilities with the output layer, forward and backward")
    for row in results.get("logp", ()):
        what = row.get("error") or f"{middle(row['milliseconds'])} ms, {row['gib']:.2f} GiB"
        print(f"  {row['tokens']:6} tokens  {row['way']:27} {what}")


def limits(row: dict[str, Any]) -> str:
    """The work of both phases against what the device can do at most."""
    update, decode = (statistics.median(row["seconds"][name]) for name in ("update", "decode"))
    work, reads = row["update_work"], row["decode_work"]
    pflop = sum(value for name, value in work.items() if name.endswith("_pflop"))
    parts = ", ".join(f"{name[:-6]} {value:.3f}" for name, value in work.items() if name.endswith("_pflop"))
    return (
        f"  update: {work['tokens']} tokens, {pflop:.3f} PFLOP ({parts}), {pflop * 1e3 / update:.0f} TFLOP/s, "
        f"{pflop * 1e15 / FLOPS / update:.0%} of the largest rate\n"
        f"  decode: {reads['tb']:.2f} TB and {reads['pflop']:.3f} PFLOP, at least "
        f"{max(reads['tb'] * 1e12 / BYTES, reads['pflop'] * 1e15 / FLOPS):.2f} s of {decode:.2f}"
    )


def attempt(function: Callable[..., dict[str, Any]], who: str, case: str, *rest: Any) -> dict[str, Any]:
    """The row, or what went wrong."""
    try:
        return function(case, *rest)
    except Exception as error:
        return {"who": who, "case": case, "error": f"{type(error).__name__}: {str(error)[:300]}"}


def placement(size: Size, options: argparse.Namespace) -> Any:
    """What the options say."""
    from assay.engine import Placement

    return Placement(
        size.device, tokens=options.tokens, compiled=not options.plain, recompute=options.recompute,
        packed=not options.padded,
    )  # fmt: skip


def main() -> None:
    """Runs what is named."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.one_gpu", description=__doc__.split("\n")[0] if __doc__ else ""
    )
    parser.add_argument("names", nargs="*", help="logp, a, b, trl-a, trl-b (default: all)")
    parser.add_argument("--steps", type=int, default=5, help="measured steps, after one that is not")
    parser.add_argument("--peer-steps", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=0, help="through the network at once (0: as a placement chooses)")
    parser.add_argument("--plain", action="store_true", help="layers are not compiled")
    parser.add_argument("--padded", action="store_true", help="rows are padded, not packed")
    parser.add_argument("--cache", type=float, default=0.0, help="GiB of keys and values (0: for all rows at once)")
    parser.add_argument("--recompute", action="store_true", help="layers run again in the backward pass")
    parser.add_argument("--toy", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=Path("one_gpu.json"))
    options = parser.parse_args()
    size, names = TOY if options.toy else Size(), options.names or ["logp", "a", "trl-a", "b", "trl-b"]
    results: dict[str, Any] = {"torch": torch.__version__, "steps": []}
    if torch.cuda.is_available():
        results["device"] = torch.cuda.get_device_name()
    for name in names:
        if name == "logp":
            results["logp"] = logp_table(size)
        elif name.startswith("trl"):
            results["steps"].append(attempt(peer, "TRL", name[-1], size, options.peer_steps))
        else:
            row = attempt(ours, "assay", name, size, options.steps, placement(size, options), options.cache)
            results["steps"].append(row)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    show(results)
    print(f"all numbers: {options.out}")


if __name__ == "__main__":
    main()
