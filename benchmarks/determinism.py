"""Do two equal runs on this device have the same bits, and if not, what differs first?

    python -m benchmarks.determinism                               # grpo and dapo, both kinds of kernels, and probes
    python -m benchmarks.determinism dapo --kernels deterministic --steps 5
    python -m benchmarks.determinism dapo --kernels default --dtype autocast --cramped
    python -m benchmarks.determinism probes --times 50

A pair are two processes that run at the same time: a tiny Qwen3 with random weights, prompts of random words, dynamic
sampling in dapo (most groups have equal rewards and are sampled again). After every step all tensors are kept in the
order in which they come about: tokens, log-probabilities, rewards, advantages, losses, gradients, weights. The first
that differs says where to look: tokens before any gradient mean the sampler, a gradient with equal losses the
backward pass. `--cramped` leaves the second run's sampler few pages, as on a GPU that others have filled.

Probes call single operations of an update on equal inputs, many times, and count different results.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu_ours import Words
from benchmarks.one_gpu import write

METHODS, KERNELS = ("grpo", "dapo"), ("default", "deterministic")
ORDER = ("tokens", "logp", "reward", "advantage", "loss", "gradient", "weight")
"""Kinds of tensors, in the order in which a step makes them."""
CRAMPED = 1e-4
"""Share of the free memory that a cramped sampler takes, instead of a half; at least eight pages."""


@dataclass(frozen=True)
class Small:
    """Sizes: of a GPU, where texts are longer than the 128 keys that attention's backward pass reads at once; a toy."""

    toy: bool = False

    @property
    def words(self) -> int:
        """Of the vocabulary; one of them ends an answer, so that lengths differ."""
        return 24 if self.toy else 256

    @property
    def prompts(self) -> int:
        """Prompts of a step."""
        return 3 if self.toy else 16

    @property
    def prompt(self) -> int:
        """Words of a prompt."""
        return 6 if self.toy else 96

    @property
    def answer(self) -> int:
        """Words of an answer, at most."""
        return 10 if self.toy else 256

    def network(self, dtype: torch.dtype) -> Any:
        """Returns a Qwen3 with random weights, from one seed."""
        from transformers import AutoModelForCausalLM, Qwen3Config

        torch.manual_seed(0)
        scale = 1 if self.toy else 4
        config = Qwen3Config(
            vocab_size=self.words, hidden_size=64 * scale, intermediate_size=96 * scale, num_hidden_layers=scale,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16 * scale, tie_word_embeddings=True,
            max_position_embeddings=1024, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        )  # fmt: skip
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


@dataclass(frozen=True)
class Actor:
    """The network as an actor of a task."""

    size: Small
    dtype: torch.dtype

    def build(self, spec: Any) -> torch.nn.Module:
        """Returns it without the checks of a folder: there is none."""
        from assay.models.pretrained.causal import PretrainedActor

        return PretrainedActor(spec.action, self.size.network(self.dtype))


class Ending(Words):
    """Words of which number 2 ends an answer."""

    @property
    def vocabulary(self) -> Any:
        """The last word is an ordinary one."""
        return replace(super().vocabulary, eos=2)


@dataclass(frozen=True)
class First:
    """Random prompts; right is an answer whose first word has a number divisible by eight, one in eight by chance."""

    size: Small

    def item(self, ordinal: int, split: int) -> Any:
        """Returns words of a hash of the number."""
        from assay.tasks.language.items import Item

        words = torch.randint(3, self.size.words, (self.size.prompt - 1,), generator=seeded(ordinal)).tolist()
        return Item(" ".join(f"w{word}" for word in words), "", "")

    def verify(self, item: Any, completion: str) -> Any:
        """Looks at the first word alone, so that most groups have equal rewards."""
        from assay.core.record import Score

        word = re.match(r"w(\d+)", completion)
        return Score(float(word is not None and int(word[1]) % 8 == 0))


def seeded(seed: int) -> torch.Generator:
    """Returns a stream of random numbers."""
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------------------------------------------- one run
def loop_of(method: str, size: Small, options: argparse.Namespace, steps: int) -> Any:
    """Returns the loop of a run."""
    from assay import recipes
    from assay.core.optimizers import Adam
    from assay.engine.loop import Loop
    from assay.engine.placement import Placement
    from assay.parts.rollouts.episodes import Episodes
    from assay.tasks.language.prompts import PromptTask

    base = {"grpo": recipes.grpo, "dapo": recipes.dapo}[method]()
    dtype = torch.bfloat16 if options.dtype == "bfloat16" else torch.float32
    stage = replace(base.stages[0], optimizer=Adam(1e-4))
    rollout = Episodes(size.prompts, 8)
    recipe = replace(base, actor=Actor(size, dtype), rollout=rollout, stages=(stage,))
    task = PromptTask("first", First(size), Ending(size.words), size.prompt, size.answer)
    where = Placement(
        options.device, compiled=options.compiled, deterministic=options.kernels == ["deterministic"],
        precision=torch.bfloat16 if options.dtype == "autocast" else None, packed=False if options.padded else None,
    )  # fmt: skip
    return Loop(recipe, task, seed=0, num_steps=steps, placement=where)


def trace(method: str, size: Small, options: argparse.Namespace, folder: Path) -> None:
    """Runs the steps and writes the tensors of each into a file."""
    from assay import decoding as sampling
    from assay.engine.machine import repeatable, tuned

    if options.cramped:
        sampling.SHARE = CRAMPED
    with repeatable(options.kernels == ["deterministic"]):
        loop = loop_of(method, size, options, options.steps)
        with tuned(sum(flat.num_parameters for flat in loop.engine.flats.values()), bfloat16=loop.engine.bfloat16):
            for number in range(options.steps):
                save(folder / f"{number}.pt", dict(tensors(loop)))


def save(path: Path, found: dict[str, Tensor]) -> None:
    """Writes tensors by name, whole or not at all."""
    part = path.with_suffix(".part")
    torch.save({name: tensor.detach().cpu().clone() for name, tensor in found.items()}, part)
    part.replace(path)


def tensors(loop: Any) -> Iterator[tuple[str, Tensor]]:
    """Takes a step; yields what it made, by names that begin with their kind."""
    slopes: list[tuple[str, Tensor]] = []
    engine, before = loop.engine, len(vars(loop.engine))

    def noted(stage: Any, gradients: list[Tensor], *rest: Any) -> None:
        pieces = iter(gradients)
        for name in stage.trains:
            flat = engine.flats[name]
            own = zip(flat.names, flat.split(*[next(pieces) for _ in flat.pieces]), strict=True)
            slopes.extend((f"gradient of update {engine.updates}: {name}.{key}", some.clone()) for key, some in own)
        type(engine).apply(engine, stage, gradients, *rest)

    engine.apply = noted
    step = loop.step()
    del engine.apply
    assert len(vars(engine)) == before
    assert step.fresh is not None
    yield "tokens", step.fresh.action
    for name, column in (("logp", step.fresh.logp), ("reward", step.fresh.reward)):
        yield name, column
    yield from ((f"advantage: {name}", column) for name, column in sorted(step.fresh.extra.items()))
    yield from ((f"loss: {name}", torch.tensor(value)) for name, value in sorted(step.metrics.items()))
    yield from reversed(slopes)  # the backward pass begins with the last layer
    for name, flat in engine.flats.items():
        own = zip(flat.names, flat.split(*flat.pieces), strict=True)
        yield from ((f"weight: {name}.{key}", some) for key, some in own)


# ---------------------------------------------------------------------------------------------------- two runs
def pair(method: str, kernels: str, options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Runs a method twice, side by side, and returns what differs first."""
    folders = [work / f"{method}-{kernels}-{number}" for number in (0, 1)]
    children = []
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        words = [method, "--kernels", kernels, "--one", str(folder), "--device", options.device]
        words += ["--dtype", options.dtype, "--steps", str(options.steps)]
        words += ["--toy"] * options.toy + ["--padded"] * options.padded + ["--cramped"] * (options.cramped and number)
        words += ["--compiled" if options.compiled else "--no-compiled"]
        command = [sys.executable, "-m", "benchmarks.determinism", *words]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [child.communicate()[0] for child in children]
    failed = [text for child, text in zip(children, said, strict=True) if child.returncode]
    found = {"method": method, "kernels": kernels, "steps": options.steps, "dtype": options.dtype,
             "compiled": options.compiled, "cramped": options.cramped}  # fmt: skip
    if failed:
        return found | {"error": failed[0].strip()[-600:]}
    return found | compared(folders, options.steps)


def compared(folders: Sequence[Path], steps: int) -> dict[str, Any]:
    """Returns the first step with a difference and its first tensor of each kind; none if all bits are equal."""
    for number in range(steps):
        one, other = (torch.load(folder / f"{number}.pt") for folder in folders)
        names = list(dict.fromkeys([*one, *other]))
        gaps = {name: gap for name in names if (gap := difference(one.get(name), other.get(name)))}
        if gaps:
            first = {kind: next((name for name in gaps if name.startswith(kind)), None) for kind in ORDER}
            by_kind = {kind: [name, gaps[name]] for kind, name in first.items() if name}
            where = {"step": number, "first": next(iter(gaps)), "by_kind": by_kind}
            return {"equal": False, **where, "differing": len(gaps), "of": len(names)}
    return {"equal": True}


def difference(one: Tensor | None, other: Tensor | None) -> str:
    """Returns in words how two tensors differ, "" if they have the same bits."""
    if one is None or other is None:
        return "is missing in one of them"
    if one.shape != other.shape:
        return f"shapes {list(one.shape)} and {list(other.shape)}"
    differs = ~((one == other) | (one.isnan() & other.isnan()))
    if not bool(differs.any()):
        return ""
    gap = float((one.double() - other.double()).abs()[differs].max())
    return f"{int(differs.sum()):,} of {one.numel():,} numbers, by at most {gap:.3g} of {float(one.abs().max()):.3g}"


# ---------------------------------------------------------------------------------------------------- probes
def probes(device: str, dtype: torch.dtype, toy: bool) -> dict[str, Callable[[], Sequence[Tensor]]]:
    """Returns operations of an update by name, each a function that repeats it on the same inputs."""
    from assay.ops import output, packed_attention, repeats
    from assay.ops.attention import Attention

    scale = 16 if toy else 1
    draw, many, width = seeded(0), 4096 // scale, 256

    def made(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw).to(device, dtype).requires_grad_()

    states, slope = made(many, width), made(many, width).detach()
    where = torch.arange(many) // 8 * 8  # the last state of a prompt, eight times
    again = repeats.Repeats(**{name: one.to(device) for name, one in vars(repeats.repeats_of(where)).items()})
    index, table = where.to(device), made(512, width)
    words, token = made(2048, width), torch.randint(0, 2048, (many,), generator=draw).to(device)

    def slopes(result: Tensor, *inputs: Tensor) -> Sequence[Tensor]:
        return torch.autograd.grad(result, inputs, slope if result.dim() > 1 else slope[:, 0].to(result.dtype))

    found: dict[str, Callable[[], Sequence[Tensor]]] = {
        "states taken eight times, index_select": lambda: slopes(states.index_select(0, index), states),
        "states taken eight times, fixed order": lambda: slopes(repeats.taken(states, index, again), states),
        "embedding": lambda: slopes(torch.nn.functional.embedding(token % 512, table), table),
        "output layer": lambda: slopes(output.given_logp(states, words, token)[0], states, words),
        "product": lambda: slopes(states @ words[:width].t(), states, words),
    }
    for keys in (64, 128, 256, 1024) if packed_attention.is_fast(torch.device(device), dtype, 64) else ():
        rows = many // keys
        heads = [made(rows * keys, num, 64) for num in (4, 2, 2)]
        begin = torch.arange(0, rows * keys + 1, keys, dtype=torch.int32, device=device)
        plain, none = torch.arange(rows * keys, device=device), torch.empty(0, 0, dtype=torch.int64, device=device)
        plan = {"begin": begin, "begin_key": begin, "key_M": plain, "own_N": plain, "copies_PC": none,
                "longest": torch.tensor([keys, keys])}  # fmt: skip

        def attended(heads: list[Tensor] = heads, plan: dict[str, Tensor] = plan) -> Sequence[Tensor]:
            return torch.autograd.grad(packed_attention.attend(*heads, Attention(0.125), plan).square().sum(), heads)

        found[f"attention, {keys} keys"] = attended
    return found


def probed(kernels: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns how many different results each operation has in so many calls."""
    from assay.engine.machine import repeatable

    dtype, counts = torch.float32 if options.dtype == "float32" else torch.bfloat16, {}
    with repeatable(kernels == "deterministic"):
        for name, call in probes(options.device, dtype, options.toy).items():
            results = {tuple(some.float().cpu().numpy().tobytes() for some in call()) for _ in range(options.times)}
            counts[name] = len(results)
    return {"kernels": kernels, "times": options.times, "results": counts}


# ---------------------------------------------------------------------------------------------------- all of them
def told(row: dict[str, Any]) -> str:
    """Returns a row as lines of text."""
    if "results" in row:
        lines = [f"  {name}: {count} of {row['times']}" for name, count in row["results"].items()]
        return "\n".join([f"different results on equal inputs, {row['kernels']} kernels", *lines])
    what = f"{row['method']}, {row['kernels']} kernels, {row['dtype']}"
    what += ", compiled" * row["compiled"] + ", the second run cramped" * row["cramped"]
    if "error" in row:
        return f"{what}: {row['error']}"
    if row["equal"]:
        return f"{what}: {row['steps']} steps, equal bit for bit"
    lines = [f"  {kind}: {name}, {gap}" for kind, (name, gap) in row["by_kind"].items()]
    head = f"{what}: step {row['step']}, first in {row['first']} ({row['differing']} of {row['of']} tensors differ)"
    return "\n".join([head, *lines])


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.determinism", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="grpo, dapo, probes (default: all)")
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--times", type=int, default=20, help="calls of a probe")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float32", "autocast"), default="bfloat16",
                        help="of the weights; autocast: float32 weights, bfloat16 arithmetic")  # fmt: skip
    parser.add_argument("--compiled", action=argparse.BooleanOptionalAction, default=torch.cuda.is_available())
    parser.add_argument("--padded", action="store_true", help="rows are padded, not packed")
    parser.add_argument("--cramped", action="store_true", help="few pages for the second run's sampler")
    parser.add_argument("--toy", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=Path("determinism.json"))
    parser.add_argument("--one", type=Path, help="folder of one run's tensors, for internal use")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Runs what is named; prints and writes what differs."""
    options = arguments(words)
    size = Small(options.toy)
    if options.one is not None:
        trace(options.names[0], size, options, options.one)
        return []
    rows: list[dict[str, Any]] = []
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else options.device
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.names or [*METHODS, "probes"]:
            for kernels in options.kernels:
                own = probed(kernels, options) if name == "probes" else pair(name, kernels, options, Path(scratch))
                rows.append(own)
                print(told(own), flush=True)
                write(options.out, {"torch": torch.__version__, "device": device, "rows": rows})
    return rows


if __name__ == "__main__":
    main()
