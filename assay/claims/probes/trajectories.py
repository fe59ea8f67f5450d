"""Windows of episodes, and a trajectory transformer by hand: token by token and head by head, from its weights.

Axes: B windows, T columns, W width, D head size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from assay.claims.probes.formulas import BOX_SPEC, built, transitions
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.slots import Scene, Task
from assay.core.spaces import Box, Spec
from assay.engine.loop import Loop
from assay.parts import Windows


def windows(spec: Spec = BOX_SPEC, num: int = 6, length: int = 5) -> Experience:
    """Returns random windows in float64, of 1 to `length` decisions, with arbitrary numbers behind their ends."""
    flat = transitions(spec, num=num * (length + 1))
    whole = flat.map(lambda column: column[:, 0].reshape(num, length + 1, *column.shape[2:]))
    column, last = torch.arange(length + 1), torch.arange(num) % length + 1
    mask, noise = column < last.unsqueeze(1), torch.Generator().manual_seed(3)
    shown = {
        "return_to_go": torch.randn(num, length + 1, generator=noise, dtype=torch.float64),
        "previous_action": whole.action.roll(1, 1),
        "previous_reward": whole.reward.roll(1, 1),
        "time": column + torch.arange(num).unsqueeze(1) % 3,
    }
    return replace(whole, context={**whole.context, **shown}, mask=mask)


# ---------------------------------------------------------------------------------------------------- by hand
Weights = Mapping[str, Tensor]
Token = Callable[[Weights, str, Tensor, Tensor], Tensor]


def weights_of(body: Any) -> dict[str, Tensor]:
    """Returns parameters, which carry gradient, and other tensors of a body by name."""
    return {name: value.double() for name, value in body.state_dict().items()} | dict(body.named_parameters())


def token_of(weights: Weights, kind: str, value: Tensor, time: Tensor) -> Tensor:
    """Returns norm(W x + b + time)."""
    linear = weights[f"{kind}.weight"] @ value + weights[f"{kind}.bias"]
    return functional.layer_norm(linear + time, linear.shape, weights["norm.weight"], weights["norm.bias"])


def output_of(weights: Weights, hidden: Tensor) -> Tensor:
    """Returns W h + b of each row."""
    return hidden @ weights["output.weight"].T + weights["output.bias"]


def outputs(
    weights: Weights, stack: Any, context: Weights, done: Tensor, scale: float, token: Token = token_of,
    output: Callable[[Weights, Tensor], Tensor] = output_of,
) -> Tensor:  # fmt: skip
    """Returns the outputs [B, T, O] of windows; `done` are the actions as vectors before each column, [B, T, A]."""
    found = []
    for row in range(len(done)):
        tokens, times = [], weights["of_time.weight"][context["time"][row]]
        for t in range(done.shape[1]):
            if t:
                tokens.append(token(weights, "of_action", done[row, t], times[t - 1]))
            tokens.append(token(weights, "of_return", context["return_to_go"][row, t : t + 1] / scale, times[t]))
            seen = (context["observation"][row, t] - weights["mean"]) / weights["deviation"]
            tokens.append(token(weights, "of_state", seen, times[t]))
        found.append(output(weights, layers(weights, torch.stack(tokens), stack)[1::3]))
    return torch.stack(found)


def layers(weights: Weights, x: Tensor, stack: Any, sees: Sequence[Sequence[int]] | None = None) -> Tensor:
    """Returns the hidden states of tokens [L, W], each of which sees those before it, or those that are given."""
    width, size = x.shape[1], x.shape[1] // stack.heads
    for layer in range(stack.layers):
        own = {name.partition(f"blocks.{layer}.")[2]: value for name, value in weights.items()}
        query, key, value = (normed(x, own["norm_attention"]) @ own["qkv.weight"].T).split(width, 1)
        heads = [
            attention(turned(query[:, at : at + size]), turned(key[:, at : at + size]), value[:, at : at + size], sees)
            for at in range(0, width, size)
        ]
        x = x + torch.cat(heads, 1) @ own["out.weight"].T
        x = x + functional.gelu(normed(x, own["norm_mlp"]) @ own["up.weight"].T) @ own["down.weight"].T
    return normed(x, weights["stack.norm"])


def normed(x: Tensor, gain: Tensor) -> Tensor:
    """Returns rows with mean 0 and deviation 1, times a gain."""
    centred = x - x.mean(1, keepdim=True)
    return centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt() * gain


def turned(x: Tensor) -> Tensor:
    """Returns the pairs of features of token l rotated by the angles l * 10000^(-2k / D)."""
    place, pair = torch.arange(len(x)).double(), torch.arange(x.shape[1] // 2).double()
    angle = place.unsqueeze(1) * 10000.0 ** (-2 * pair / x.shape[1])
    even, odd = x[:, ::2], x[:, 1::2]
    return torch.stack((even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()), 2).flatten(1)


def attention(query: Tensor, key: Tensor, value: Tensor, sees: Sequence[Sequence[int]] | None = None) -> Tensor:
    """Returns for each token the mean of the values up to it, or of those that it sees, weighted by the softmax of the
    products.
    """
    rows = []
    for place in range(len(query)):
        seen = list(range(place + 1)) if sees is None else list(sees[place])
        product = key[seen] @ query[place] / math.sqrt(query.shape[1])
        rows.append(product.softmax(0) @ value[seen])
    return torch.stack(rows)


# ---------------------------------------------------------------------------------------------------- what it sees
def leaks(recipe: Recipe, spec: Spec = BOX_SPEC) -> float:
    """Returns how many outputs of a window change with what they must not see, or do not with what they must.

    Not to be seen at t: a_t, R_t+1, s_t+1 and all later; to be seen: R_t, s_t and a_t-1.
    """
    actor: Any = built(recipe, spec).models["actor"]
    body, batch = actor.body, windows(spec)
    plain, wrong = body(batch.context), 0
    for column in range(1, batch.num_columns):
        for name in ("return_to_go", "observation", "previous_action"):
            value = batch.context[name].clone()
            value[:, column] += 1
            moved = (body({**batch.context, name: value}) != plain).flatten(2).any(2)
            wrong += int(moved[:, :column].sum()) + int((~moved[:, column]).sum())
    return float(wrong)


def body_of(actor: Any) -> Any:
    """Returns the body of an actor."""
    return actor.body


def logits_of(actor: Any) -> Any:
    """Returns the function from contexts to logits."""
    return actor.logits


@torch.no_grad()
def acting_gap(recipe: Recipe, task: Task, decisions: int = 12, function: Callable[[Any], Any] = body_of) -> float:
    """Returns how far what a policy would do in the steps of a logged episode is from what training scores there, if
    its target is the return of that episode. Its context begins where the window of training does. What it would do is
    a function of contexts, made from the actor.
    """
    source: Any = recipe.source
    length = source.length
    loop = Loop(recipe, task, seed=0, num_steps=1)
    shown: Any = loop.task
    episodes = Windows(source.logs, length=decisions + length)
    table = episodes.init(Scene(task))["contents"].columns
    whole = episodes.rows(table, [torch.zeros(1, dtype=torch.int64)])
    body, decide = loop.actor.body, function(loop.actor)
    log = source.logs[0].columns(task)
    end = int((log["terminal"] | log["truncated"])[:, 0].nonzero()[0]) + 1
    body.settings = replace(body.settings, target=float(log["reward"][:end, 0].sum()), scale=100.0)
    start, simulation, gaps = torch.zeros(1, dtype=torch.int64), shown.simulate(1), []
    context = simulation.reset(seeds_of(shown))
    for time in range(min(decisions, int(whole.mask.sum()))):
        first = max(0, time - length + 1)
        window = replace(episodes, length=time - first + 1).rows(table, [start + first])
        gaps.append((decide(context) - decide(window.context)[:, time - first]).abs().max())
        gaps.append((context["observation"] - window.context["observation"][:, time - first]).abs().max())
        context = simulation.step(whole.action[:, time])[0]
    return float(torch.stack(gaps).max())


def seeds_of(task: Any) -> np.ndarray:
    """Returns the seed of the log's first episode."""
    from assay.tasks.control.stepping import start_seeds

    return start_seeds(0, np.zeros(1, np.int64))


def vectors_of(done: Tensor, spec: Spec) -> Tensor:
    """Returns actions as vectors: half-ranges, or which of the choices it is."""
    if isinstance(spec.action, Box):
        low, high = (torch.tensor(side, dtype=torch.float64) for side in (spec.action.low, spec.action.high))
        return (done - (low + high) / 2) / ((high - low) / 2)
    return functional.one_hot(done, spec.action.n).double()  # type: ignore[union-attr]
