"""Plans which GPUs compute which call of an update: seconds and memory of every placement, before a cluster is rented.

    calls       generate, score (reward, reference, value), train (actor, critic): those that the method's recipe has
    seconds     measured ones (`--step-times`), fitted by work / n^scaling; else estimated from the parameters,
                2 P tokens / speed to score, 6 P tokens / speed to train, weights read once a token to generate
    memory      16 bytes a trained weight (bfloat16 weight and gradient, float32 master and two moments), 2 a frozen
                one, each over its mesh; while it generates the keys and values, while it trains the activations

Plans are timed by `assay.runs.placements`: together, with a mesh for each model (arXiv:2409.19256), with a
mesh for each call (arXiv:2406.14088), and sampling beside training. Assumes one kind of GPU. Estimated seconds
rank plans of one method; they do not predict a cluster.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.engine.memory import ROWS, parts_below, whole_numbers
from assay.recipes.presets import LANGUAGE
from assay.runs import catalogue
from assay.runs.config import read_config
from assay.runs.folder import read_metrics
from assay.runs.placements import Graph, Mesh, PlannedCall, best, by_model, meshes, searched, together

GENERATE, TRAIN, BESIDE = "generate", "train actor", "sampling beside training"
SCALING = {GENERATE: 0.5, "train": 0.9, "score": 0.8}
"""Gain with more devices, n^scaling, where it was not measured: generation gains least."""
SPEED, BANDWIDTH, LINK = 4e14, 2e12, 5e10
"""Operations and bytes of memory a second of a GPU, and bytes a second between two: what an H100 reaches, roughly."""
TRAINED, FROZEN = 16, 2
"""Bytes of a weight that is trained with Adam, and of one that is not."""
MICRO = 16_384
"""Tokens of one micro-batch, whose activations are kept."""
SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
"""Fields of a model's config.json."""
USABLE = 0.9
"""Share of a GPU's memory that a plan may take."""
WIDEST = 8
"""Meshes are halves, quarters and eighths of the GPUs."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a transformer that decide memory and time; `kept` is the bytes of keys and values of one token."""

    parameters: float
    layers: int
    width: int
    kept: float


@dataclass(frozen=True)
class Load:
    """One update: rows, tokens of a prompt and of an answer, and how often each row is trained."""

    rows: int
    prompt: int
    answer: int
    epochs: int = 1

    @property
    def tokens(self) -> int:
        """Returns the tokens of all rows."""
        return self.rows * (self.prompt + self.answer)


@dataclass(frozen=True)
class Planned:
    """A plan: seconds of an update, the fullest GPU's bytes, and the mesh of each call."""

    name: str
    seconds: float
    memory: float
    plan: Mapping[str, Mesh]


@dataclass(frozen=True)
class Planner:
    """Plans of one method: its calls, the model, the GPUs, and which calls were measured."""

    graph: Graph
    shape: Shape
    load: Load
    gpus: int
    gpu_memory: float
    measured: tuple[str, ...] = ()

    def memory(self, plan: Mapping[str, Mesh]) -> float:
        """Returns the bytes of the fullest GPU.

        A trained model stays on the mesh that trains it; where it generates or scores on another one, a copy of its
        weights is there too.
        """
        held, peak, weights = dict[int, float](), dict[int, float](), self.shape.parameters
        trained = {call.model: plan[call.name] for call in self.graph.calls if is_training(call.name)}
        for model, mesh in trained.items():
            spread(held, mesh, TRAINED * weights)
            copies = {plan[call.name] for call in self.graph.calls if call.model == model} - {mesh}
            for other in copies:
                spread(held, other, FROZEN * weights)
        for call in self.graph.calls:
            if call.model not in trained:
                spread(held, plan[call.name], FROZEN * weights)
        for call in self.graph.calls:
            mesh, more = plan[call.name], dict[int, float]()
            if call.name == GENERATE:
                spread(more, mesh, self.load.tokens * self.shape.kept)
            elif is_training(call.name):
                spread(more, mesh, len(mesh) * MICRO * self.shape.layers * self.shape.width * 2)
            peak = {device: max(peak.get(device, 0.0), more.get(device, 0.0)) for device in {*peak, *more}}
        return max(held.get(device, 0.0) + peak.get(device, 0.0) for device in range(self.gpus))

    def fits(self, plan: Mapping[str, Mesh]) -> bool:
        """Returns whether every GPU has room for its part of a plan."""
        return self.memory(plan) <= USABLE * self.gpu_memory

    def planned(self, name: str, plan: Mapping[str, Mesh]) -> Planned:
        """Returns a plan with its seconds and memory."""
        return Planned(name, self.graph.seconds(plan), self.memory(plan), plan)

    def plans(self, seed: int = 0) -> list[Planned]:
        """Returns all together, the best plan by model, by call and of sampling beside training; only those that fit.

        AssayError if not even all together fits, which spreads every model over all GPUs.
        """
        start = together(self.graph, self.gpus)
        if not self.fits(start):
            raise AssayError(
                f"the plan takes {self.memory(start) / 1e9:.0f} GB of each of {self.gpus} GPUs with every model over "
                f"all of them, and {USABLE:.0%} of {self.gpu_memory / 1e9:.0f} GB may be used. Use more --gpus, a "
                "smaller --model, or fewer --rows"
            )
        options = [mesh for mesh in meshes(self.gpus) if len(mesh) * WIDEST >= self.gpus]
        placed = best(self.graph, (plan for plan in by_model(self.graph, options) if self.fits(plan)))[1]
        beta = 25.0 / self.graph.seconds(start)  # 0.5 a second for a plan of 50 seconds
        found = [
            searched(self.graph, options, begin, seed + place, beta, fits=self.fits)
            for place, begin in enumerate((start, placed, start))
        ]
        by_call = min(found, key=lambda one: one[0])[1]
        named = {"together": start, "a mesh for each model": placed, "a mesh for each call": by_call}
        return [self.planned(name, plan) for name, plan in named.items()] + self.beside()

    def beside(self) -> list[Planned]:
        """Returns the best split in which some GPUs sample the next step while the others train, one version apart.

        A step takes the longer of the two: generate + move on s GPUs, all other calls on the rest. Empty without a
        call that generates, or if no split fits.
        """
        rest = [call for call in self.graph.calls if call.name != GENERATE]
        if self.gpus < 2 or len(rest) == len(self.graph.calls):
            return []
        found = []
        for share in sorted({max(1, self.gpus * eighth // 8) for eighth in range(1, 8)}):
            apart, mesh = frozenset(range(share)), frozenset(range(share, self.gpus))
            plan: dict[str, Mesh] = {GENERATE: apart} | {call.name: mesh for call in rest}
            sampled = next(call for call in self.graph.calls if call.name == GENERATE).seconds(apart)
            trained = sum(call.seconds(mesh) for call in rest)
            if self.fits(plan):
                seconds = max(sampled, trained) + self.graph.moving
                found.append(Planned(BESIDE, seconds, self.memory(plan), plan))
        return [min(found, key=lambda one: one.seconds)] if found else []


def is_training(name: str) -> bool:
    """Returns whether a call trains."""
    return name.startswith("train ")


def spread(held: dict[int, float], mesh: Mesh, bytes: float) -> None:
    """Adds a share of the bytes to every device of a mesh."""
    for device in mesh:
        held[device] = held.get(device, 0.0) + bytes / len(mesh)


# ---------------------------------------------------------------------------------------------------- what is planned
def make_planner(
    method: str,
    model: str,
    gpus: int,
    *,
    gpu_memory: float = 80.0,
    rows: int | None = None,
    prompt: int = 512,
    answer: int = 1_024,
    times: Path | None = None,
) -> Planner:
    """Returns the planner of a method with a model on some GPUs of `gpu_memory` GB; refuses what cannot be planned."""
    if gpus < 1 or gpus & (gpus - 1):
        raise AssayError(f"--gpus is {gpus}. Use a power of two: meshes are halves of halves.")
    for name, value in (("gpu-memory", gpu_memory), ("prompt-tokens", prompt), ("answer-tokens", answer)):
        if not 0 < value < math.inf:
            raise AssayError(f"--{name} is {value:g}. Use more than 0.")
    if rows is not None and rows < 1:
        raise AssayError(f"--rows is {rows}. Use at least 1.")
    recipe = language_recipe(method)
    load = Load(rows or rows_of(recipe), prompt, answer, epochs_of(recipe))
    shape = shape_of(model)
    graph = estimated_graph(recipe, shape, load)
    measured = {} if times is None else read_times(times, graph)
    calls = tuple(fitted(call, measured[call.name]) if call.name in measured else call for call in graph.calls)
    return Planner(replace(graph, calls=calls), shape, load, gpus, gpu_memory * 1e9, tuple(measured))


def language_recipe(method: str) -> Recipe:
    """Returns the recipe of a method on language tasks."""
    key, found = catalogue.find_method(method)
    if LANGUAGE not in found.presets:
        raise AssayError(f"{key} does not train language models, and only their placement is planned. Try grpo or ppo.")
    return found.recipe(LANGUAGE)


def rows_of(recipe: Recipe) -> int:
    """Returns the rows that a step of the recipe samples, or draws if it samples none."""
    sizes = [whole_numbers(part, ROWS) for _, part in parts_below(recipe.rollout, "rollout")]
    drawn = [whole_numbers(part, ("batch",)) for feed in recipe.feeds for _, part in parts_below(feed.source, "source")]
    return max(math.prod(one.values()) for one in (*sizes, *drawn, {"one": 1}) if one)


def epochs_of(recipe: Recipe) -> int:
    """Returns how often a step trains each of its rows."""
    counts = [
        whole_numbers(part, ("epochs",)).get("epochs", 1)
        for feed in recipe.feeds
        for _, part in parts_below(feed.source, "source")
    ]
    return max(counts, default=1)


def shape_of(model: str) -> Shape:
    """Returns the sizes of a model: those in the config.json of a folder, or of a usual transformer of SIZE weights.

    A usual one has 128 L wide layers, L of them, 12 L (128 L)^2 weights, and a quarter of the heads' keys and values.
    """
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        return folder_shape(folder)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([MB])", model.strip(), re.IGNORECASE)
    if not found or float(found[1]) == 0.0:
        raise AssayError(f"--model is '{model}', neither a folder with config.json nor a size. Write e.g. 7B or 500M.")
    count = float(found[1]) * {"M": 1e6, "B": 1e9}[found[2].upper()]
    layers = max(1, round((count / (12 * 128**2)) ** (1 / 3)))
    width = 128 * layers
    return Shape(count, layers, width, layers * 2 * (width // 4) * 2)


def folder_shape(folder: Path) -> Shape:
    """Returns the sizes of a model in transformers format, from its config.json and the headers of its weights."""
    facts = json.loads((folder / "config.json").read_text())
    facts = facts.get("text_config", facts)
    try:
        layers, width, heads, inner, words = (int(facts[name]) for name in SIZES)
    except (KeyError, TypeError, ValueError) as error:
        raise AssayError(f"{folder / 'config.json'} lacks {error}. Give --model a size instead, e.g. 7B.") from None
    head = int(facts.get("head_dim") or width // heads)
    shared = int(facts.get("num_key_value_heads") or heads) * head
    count = layers * (2 * width * heads * head + 2 * width * shared + 3 * width * inner) + words * width
    return Shape(float(count if facts.get("tie_word_embeddings") else count + words * width), layers, width,
                 layers * 2 * shared * 2.0)  # fmt: skip


def estimated_graph(recipe: Recipe, shape: Shape, load: Load) -> Graph:
    """Returns the calls of a recipe's update with seconds estimated from the parameters."""
    weights = shape.parameters
    score = 2 * weights * load.tokens / SPEED
    train = 6 * weights * load.tokens * load.epochs / SPEED
    read = (FROZEN * weights + load.tokens * shape.kept / 2) / BANDWIDTH
    generate = load.answer * max(2 * weights * load.rows / SPEED, read)
    first = (GENERATE,) if recipe.rollout else ()
    calls = [PlannedCall(GENERATE, "actor", generate, SCALING[GENERATE])] if recipe.rollout else []
    scored = [*(["reference"] if "reference" in recipe.copies else []), *recipe.critics]
    calls += [PlannedCall(f"score {name}", name, score, SCALING["score"], first) for name in scored]
    after = tuple(f"score {name}" for name in scored) or first
    calls += [PlannedCall(TRAIN, "actor", train, SCALING["train"], after, first[0] if first else "")]
    more = recipe.critics
    calls += [PlannedCall(f"train {name}", name, train, SCALING["train"], after, f"score {name}") for name in more]
    return Graph(tuple(calls), FROZEN * weights / LINK)


# ---------------------------------------------------------------------------------------------------- measured seconds
def read_times(path: Path, graph: Graph) -> dict[str, dict[int, float]]:
    """Returns measured seconds of calls by the number of GPUs: of a JSON file {call: {gpus: seconds}}, in which a plain
    number is of one GPU, or of a run folder, whose phases are shared out over the calls.
    """
    names = [call.name for call in graph.calls]
    if path.is_dir():
        return times_of_run(path, names)
    try:
        given = json.loads(path.read_text())
        rows = {name: value if isinstance(value, dict) else {"1": value} for name, value in given.items()}
        found = {name: {int(n): float(s) for n, s in value.items()} for name, value in rows.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise AssayError(f"--step-times {path} is not of the form {{call: {{gpus: seconds}}}} ({error}).") from None
    for name, seconds in found.items():
        if name not in names:
            raise AssayError(f"--step-times names '{name}', which is no call here. The calls are {', '.join(names)}.")
        if not seconds or any(n < 1 or not 0 < s < math.inf for n, s in seconds.items()):
            raise AssayError(f"--step-times has {seconds} for '{name}'. Use numbers of GPUs and seconds above 0.")
    return found


def times_of_run(folder: Path, names: Sequence[str]) -> dict[str, dict[int, float]]:
    """Returns the mean seconds of a run's phases, after its first step: sample is generate, credit is shared by the
    scores, update by the trainings.
    """
    ranks = int(read_config(folder / "config.json").get("ranks") or 1)
    steps = [row.get("time", {}) for row in read_metrics(folder) if "update" in row.get("time", {})][1:]
    if not steps:
        raise AssayError(f"--step-times {folder} has no second step. Name a run of at least two steps.")
    kinds = {
        "sample": [name for name in names if name == GENERATE],
        "credit": [name for name in names if name.startswith("score ")],
        "update": [name for name in names if is_training(name)],
    }
    means = {phase: float(np.mean([row.get(phase, 0.0) for row in steps])) for phase in kinds}
    return {
        name: {ranks: means[phase] / len(some)} for phase, some in kinds.items() for name in some if means[phase] > 0
    }


def fitted(call: PlannedCall, seconds: Mapping[int, float]) -> PlannedCall:
    """Returns the call with the work and scaling of measured seconds: least squares of log seconds = log work - scaling
    log n. One number of GPUs gives the work alone; scaling is between 0 and 1.
    """
    counts, logs = np.log(np.array(list(seconds), dtype=float)), np.log(np.array(list(seconds.values())))
    scaling = call.scaling
    if len(seconds) > 1:
        slope = float(((counts - counts.mean()) * (logs - logs.mean())).sum() / ((counts - counts.mean()) ** 2).sum())
        scaling = min(1.0, max(0.0, -slope))
    return replace(call, work=float(np.exp((logs + scaling * counts).mean())), scaling=scaling)


def plan_facts(planner: Planner, plans: Sequence[Planned]) -> dict[str, Any]:
    """Returns plans as JSON."""
    calls = {
        call.name: {"seconds_on_one": call.work, "scaling": call.scaling, "measured": call.name in planner.measured}
        for call in planner.graph.calls
    }
    rows = [
        {"plan": one.name, "seconds": one.seconds, "memory_gb": one.memory / 1e9,
         "gpus": {name: sorted(mesh) for name, mesh in one.plan.items()}}
        for one in plans
    ]  # fmt: skip
    return {"parameters": planner.shape.parameters, "rows": planner.load.rows, "calls": calls, "plans": rows}
