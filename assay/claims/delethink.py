"""Episodes in several rows by hand, and what a chunk may see. Axes: B sequences, T decisions."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Average, Claims, Exact, Measured, PromptTask, addition, by_hand, probes
from assay.method import LANGUAGE, Draw, Experience, Recipe, recipes
from assay.methods.delethink import InChunks, recipe
from assay.models import Policy, Transformer
from assay.parts import group_rows


def cut_in_rows() -> Experience:
    """Returns groups of four off-policy episodes, every second one in two rows."""
    data = probes.sequences(num=96, group_size=6, spread=4.0)
    within = torch.arange(96) % 6
    return replace(data, episode=torch.arange(96) // 6 * 4 + torch.tensor([0, 1, 1, 2, 3, 3])[within])


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data, ratio, total, lost = seen.experience, by_hand.ratio(seen), by_hand.outcome(seen.experience), []
    assert data.episode is not None
    assert data.group is not None
    for label in data.group.unique():
        there = (data.group == label) & data.mask.any(1)
        rows = [((data.episode == one) & there).nonzero().flatten() for one in data.episode[there].unique()]
        outcome = torch.stack([total[own].sum() for own in rows])
        advantage = (outcome - outcome.mean()) / (outcome.std() + 1e-4)
        for own, A in zip(rows, advantage, strict=True):
            rho = ratio[own][data.mask[own]]
            gain = torch.minimum(rho * A, rho.clamp(1 - 0.2, 1 + 0.26) * A)
            lost.append(-(gain if A > 0 else gain.clamp(min=3.0 * float(A))).mean())
    return torch.stack(lost).mean()


def of_limit(limit: int) -> PromptTask:
    """Returns addition with answers of up to `limit` tokens."""
    return replace(addition(1), max_tokens=limit)


def wrong_chunks(recipe: Recipe, limit: int) -> float:
    """Returns how many rows of a rollout are not: prompt and at most half a chunk of the answer so far as context, then
    the next decisions, a chunk or half of it; with log-probabilities in that context; plus answers that the wrapped
    policy writes otherwise.
    """
    task, chunk = of_limit(limit), max(4, limit // 4)
    (found,), actor, _ = probes.gathered(recipe, task)
    with torch.no_grad():
        logp = actor.score(found, frozenset()).logp
    assert found.episode is not None
    wrong, answers = float(not ((logp - found.logp) * found.mask).abs().max() <= 1e-4), {}
    for episode in found.episode.unique().tolist():
        start, sample = divmod(episode, 8)
        prompt, answer = task.begin(np.array([start]), 0).context["tokens"][0].tolist(), list[int]()
        for row in (found.episode == episode).nonzero().flatten().tolist():
            size = chunk // 2 if answer else chunk
            tokens = found.context["tokens"][row][found.context["valid"][row]].tolist()
            decided = found.action[row][found.mask[row]].tolist()
            ends = bool((found.terminal | found.truncated)[row].any())
            wrong += tokens != prompt + answer[max(0, len(answer) - chunk // 2) :] + decided
            wrong += len(decided) > size or (len(decided) < size and not ends)
            answer += decided
        wrong += not ends or (len(answer) < limit and answer[-1] != task.tokenizer.vocabulary.eos)
        answers[start, sample] = answer
    policy = recipe.policy({"actor": actor})
    played = task.play(policy, *group_rows(np.arange(3), 8), Draw(0, (0,)), split=0, greedy=False)
    keys = zip(played.column("start").tolist(), played.column("sample").tolist(), strict=True)
    wrong += sum(answers[key] != played.action[row][played.mask[row]].tolist() for row, key in enumerate(keys))
    return wrong + float(max(map(len, answers.values())) <= chunk)


SMALL = replace(LANGUAGE, actor=Policy(Transformer(64, 2, 2)))
"""Enough for counting to nine, in a quarter of the time."""


UNCUT = replace(recipes.grpo(SMALL), name="grpo-in-chunks", wrapper=InChunks())
"""Trained with the whole context, evaluated in chunks."""


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is the formula's: one advantage and one mean for all rows of an episode",
              lambda: probes.formula_gap(recipe(), cut_in_rows(), loss_by_hand), at_most=1e-9),
        Exact("each chunk sees the prompt and the tail of the answer, up to the task's limit",
              lambda: max(wrong_chunks(recipe(), limit) for limit in (9, 40)), equals=0.0),
        Measured("where a count must survive the cuts, training in chunks is right in chunks more often than training "
                 "with the whole context", "counting", recipe(SMALL), UNCUT, margin=0.1, seeds=5, minutes=8.0, steps=20,
                 warmup=300, about=About.HEADLINE),
        Measured("chunked answers are right as often as grpo's with the whole context", "sorting-5", recipe(),
                 recipes.grpo(), metric=Average("reward", 0.2), margin=-0.05, seeds=5, minutes=22.0, steps=100, looks=4,
                 warmup=60, about=About.COMPONENT),
    ),
)
