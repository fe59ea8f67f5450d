"""Given completions of a task's prompts as experience: what a reward is shown on, without a policy.

Axes: B sequences, T decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assay.claims.probes.tensors import distance
from assay.core.recipe import Recipe
from assay.core.record import Experience, Outcome, Progress, Score
from assay.core.slots import Models, Scene, Task, Transform
from assay.core.slots.scene import NoModels
from assay.core.verifier import Verifier
from assay.engine.loop_metrics import averages
from assay.rollouts import text
from assay.rollouts.text import ByteTokenizer
from assay.tasks.language.prompts import PromptTask, prompt_ids
from assay.tasks.language.items import Item


@dataclass(frozen=True)
class Listed:
    """Given items, in both splits, round and round; a completion that ends with the answer is right."""

    items: tuple[Item, ...]

    def item(self, ordinal: int, split: int) -> Item:
        """Returns item `ordinal`, modulo their number."""
        return self.items[ordinal % len(self.items)]

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 if the completion ends with the answer."""
        return Score(float(completion.endswith(item.answer)))


def listed(*items: Item, max_tokens: int = 64) -> PromptTask:
    """Returns the task of these items, in bytes."""
    return PromptTask("listed", Listed(items), ByteTokenizer(), 16, max_tokens)


def labelled(*labels: str, fact: str = "label", max_tokens: int = 99) -> PromptTask:
    """Returns a task of questions whose answer is 7, one for each label, which is a fact of its prompt."""
    return listed(*(Item("q", "7", "7", {fact: label}) for label in labels), max_tokens=max_tokens)


def rewarded(recipe: Recipe, task: PromptTask, experience: Experience, models: Models = NoModels()) -> Tensor:
    """Returns what the recipe's own rewards pay for each row in all its columns, [B] in float64.

    Assumes that the whole reward belongs on the last decision: what stands elsewhere is counted ten times.
    """
    return rewarded_in_turn(recipe, task, [experience], models)[0]


def rewarded_in_turn(
    recipe: Recipe, task: Task, steps: Sequence[Experience], models: Models = NoModels()
) -> list[Tensor]:
    """Returns `rewarded` of the experience of several steps; the states of the rewards are kept between them."""
    states, found = [part.init(Scene(task, models)) for part in recipe.rewards], []
    for number, experience in enumerate(steps):
        scene = Scene(task, models, progress=Progress(number, len(steps)))
        for part, state in zip(recipe.rewards, states, strict=True):
            experience = part(experience, scene, state)
        over = experience.terminal | experience.truncated
        found.append((experience.reward.double() * torch.where(over, 1.0, 10.0)).sum(1))
    return found


def completed(
    task: PromptTask,
    completions: Sequence[str],
    starts: Sequence[int],
    *,
    cut: Sequence[int] = (),
    faults: Sequence[int] = (),
    prob: Sequence[float] = (),
) -> Experience:
    """One row for each (start, completion), not yet rewarded; rows of one start are a group, samples are numbered.

    Rows in `cut` stop without an end token, rows in `faults` have left training (mask false). Each decision of row b
    was taken with probability `prob[b]` (1 if `prob` is not given).
    """
    vocabulary, start_B = task.tokenizer.vocabulary, torch.tensor(starts)
    prompts = [prompt_ids(task.tokenizer, item.prompt, task.max_prompt) for item in task.items_of(start_B, 0)]
    ends = [[] if row in cut else [vocabulary.eos] for row in range(len(completions))]
    told = [[*task.tokenizer.encode(said), *end] for said, end in zip(completions, ends, strict=True)]
    record = text.written(prompts, told, start_B, vocabulary.pad)
    is_cut, is_there = (
        torch.tensor([(row in some) is so for row in range(len(told))]).unsqueeze(1)
        for some, so in ((cut, True), (faults, False))
    )
    logp = torch.tensor([*prob, *[1.0] * (len(told) - len(prob))]).log().unsqueeze(1) * record.mask
    samples = torch.tensor([list(starts[:row]).count(start) for row, start in enumerate(starts)])
    last = record.terminal & is_there
    record = replace(record, mask=record.mask & is_there, terminal=last & ~is_cut, truncated=last & is_cut)
    return replace(record, logp=logp, source=None).add({"sample": samples})


def answered(
    said: Sequence[str], max_tokens: int = 64, *, cut: Sequence[int] = (), faults: Sequence[int] = ()
) -> tuple[PromptTask, Experience]:
    """Returns a task of one question, whose answer is 7, and its `completed` rows with these completions, one group."""
    task = listed(Item("q", "7", "7"), max_tokens=max_tokens)
    return task, completed(task, said, [0] * len(said), cut=cut, faults=faults)


def reward_gap(recipe: Recipe, expected: Mapping[str, float], max_tokens: int = 64) -> float:
    """Returns how far the recipe's rewards of these answers to the question of `answered` are from the expected."""
    return distance(rewarded(recipe, *answered(list(expected), max_tokens)), list(expected.values()))


def table_gap(
    recipe: Recipe,
    task: PromptTask,
    table: Sequence[tuple[str, int, float]],
    *,
    cut: Sequence[int] = (),
    faults: Sequence[int] = (),
    prob: Sequence[float] = (),
) -> float:
    """Returns how far the recipe's rewards are from a table of (completion, start, reward); see `completed`."""
    said, starts, expected = zip(*table, strict=True)
    rows = completed(task, said, starts, cut=cut, faults=faults, prob=prob)
    return distance(rewarded(recipe, task, rows), expected)


def log_gap(part: Transform, expected: Mapping[str, float], task: PromptTask, rows: Experience) -> float:
    """Returns how far the means of metrics that a part logs of verified rows are from the expected."""
    scene = Scene(task)
    part(Verifier()(rows, scene), scene)
    found = averages(scene.metrics)
    return distance([found[name] for name in expected], list(expected.values()))


def mode_gap(recipe: Recipe, modes: Mapping[str, str], task: PromptTask | None = None) -> float:
    """Returns how far the shares of classes that the recipe's first credit logs are from those of these answers, each
    given with its class, on a task; the question of `answered` without one.
    """
    expected = {f"mode/{name}": num / len(modes) for name, num in Counter(modes.values()).items()}
    rows = answered(list(modes)) if task is None else (task, completed(task, list(modes), [0] * len(modes)))
    return log_gap(recipe.credit[0], expected, *rows)


@torch.no_grad()
def decoded_logp(actor: Any, before: Sequence[int], tokens: Sequence[int]) -> Tensor:
    """Returns the log-probability of each token after those before it, decoded one after the other, [tokens]."""
    decoder, found = actor.decoder([before], [1], len(tokens)), []
    for token in tokens:
        found.append(decoder.logits()[0].log_softmax(-1)[token])
        decoder.push(torch.tensor([token]))
    return torch.stack(found)
