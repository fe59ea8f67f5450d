"""The gradient of bare answers by hand, and how far it points where that of answers to prompts points.

Axes: B sequences, T decisions.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from assay.claims import About, Claims, Computed, Edit, Exact, Measured, PassAt, addition, by_hand, cartpole, probes
from assay.claims import refuses, sorting
from assay.claims.probes.gradients import witness
from assay.claims.probes.greedy import said
from assay.method import LANGUAGE, Draw, Experience, Progress, Recipe, Scene, text
from assay.methods.prerl_dsrl import WithoutPrompt, plain, recipe
from assay.models import Policy, Transformer
from assay.recipes.imitation import sft

TASK = addition(1)


def answers(seed: int = 0) -> tuple[Any, Experience]:
    """Returns a policy and 3 groups of 4 answers: one has one right answer, one two, one none."""
    actor = probes.small_policy(TASK, seed).double()
    start, sample = np.repeat(np.arange(3), 4), np.tile(np.arange(4), 3)
    with torch.no_grad():
        played = TASK.play(actor, start, sample, Draw(seed), split=0, greedy=False)
    right = torch.tensor([1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]).double()
    return actor, replace(played, logp=played.logp.double(), reward=right.unsqueeze(1) * played.terminal)


def credited(ours: Recipe, actor: Any, data: Experience, step: int = 0) -> tuple[Experience, Any]:
    """Returns the experience as the loss sees it in this one of ten steps, and the engine."""
    engine = witness(ours, actor, spec=TASK.spec)
    engine.updates = 1
    scene = Scene(TASK, engine, progress=Progress(step, 10))
    for part in ours.credit:
        data = part(data, scene, part.init(scene))
    return data, engine


def slope(ours: Recipe, actor: Any, data: Experience) -> Tensor:
    """Returns the gradient of the first step."""
    batch, engine = credited(ours, actor, data)
    return parameters_to_vector(engine.gradient(ours.stages[0], batch).values())


def logp_of(actor: Any, context: list[int], answer: list[int]) -> Tensor:
    """Returns the log-probability of each token of an answer after a context."""
    row = text.written([context], [answer], torch.zeros(1, dtype=torch.long), TASK.tokenizer.vocabulary.pad)
    found: Tensor = actor.score(row, frozenset()).logp[0][row.mask[0]]
    return found


def gap(ours: Recipe) -> float:
    """Returns how far the gradient is from 0.01 times the mean over tokens of wrong answers in mixed groups."""
    actor, data = answers()
    wrong = {1: 0.25, 2: 0.25, 3: 0.25, 4: 0.5, 7: 0.5}
    loss = [share * logp_of(actor, [TASK.tokenizer.vocabulary.bos], said(data)[row]) for row, share in wrong.items()]
    right = torch.autograd.grad(0.01 * torch.cat(loss).mean(), list(actor.parameters()), materialize_grads=True,
                                allow_unused=True)  # fmt: skip
    hand = parameters_to_vector(right)
    return float((slope(ours, actor, data) - hand).abs().max() / hand.abs().max())


def changed_later(ours: Recipe, base: Recipe) -> float:
    """Returns how far credit and contexts are from the base's after the first fifth."""
    actor, data = answers()
    (mine, _), (theirs, _) = credited(ours, actor, data, 2), credited(base, actor, data, 2)
    same = torch.equal(mine.action, theirs.action) and torch.equal(mine.mask, theirs.mask)
    return float((mine.column("advantage") - theirs.column("advantage")).abs().max()) + (not same)


def alignment(seed: int, num: int = 16, steps: int = 40) -> float:
    """Returns the mean cosine of the gradients of log P(y) and log P(y | x) over `num` sampled answers y after
    `steps` supervised steps of sorting, minus that of log P(y) and log P(z | x), y the answer to another prompt.
    """
    task = sorting(5)
    start = replace(sft(LANGUAGE), actor=Policy(Transformer(32, 1, 2)))
    actor, starts = probes.trained(start, task, seed, steps).actor, np.arange(num)
    with torch.no_grad():
        told = said(task.play(actor, starts, 0 * starts, Draw(seed), split=1, greedy=False))
    prompts = [row[there].tolist() for row, there in both(task.begin(starts, 1))]
    bare = [slope_of(actor, [task.tokenizer.vocabulary.bos], answer) for answer in told]
    asked = [slope_of(actor, prompt, answer) for prompt, answer in zip(prompts, told, strict=True)]
    gaps = [
        torch.cosine_similarity(one, own, 0) - torch.cosine_similarity(other, own, 0)
        for one, other, own in zip(bare, bare[1:] + bare[:1], asked, strict=True)
    ]
    return float(torch.stack(gaps).mean())


def both(begun: Experience) -> Any:
    """Returns the tokens of each prompt, and where they are valid."""
    return zip(begun.context["tokens"], begun.context["valid"], strict=True)


def slope_of(actor: Any, context: list[int], answer: list[int]) -> Tensor:
    """Returns the gradient of an answer's log-probability after a context."""
    total = logp_of(actor, context, answer).sum()
    return parameters_to_vector(
        torch.autograd.grad(total, list(actor.parameters()), materialize_grads=True, allow_unused=True)
    )


CLAIMS = Claims(
    claims=(
        Exact("in the first twentieth its gradient is the formula's, of wrong answers in mixed groups",
              lambda: gap(recipe()), at_most=1e-7),
        Exact("after the first twentieth its credit and contexts are grpo's",
              lambda: changed_later(recipe(), plain()), equals=0.0),
        Exact("after the first twentieth its gradient is grpo's, with a mean over tokens", lambda: probes.formula_gap(
              plain(), probes.sequences(), lambda seen: -by_hand.mean_of_decisions(by_hand.clipped(
                  by_hand.ratio(seen), by_hand.standardised(seen.experience).unsqueeze(1), 0.2, 0.2), seen.experience)),
              at_most=1e-9),
        Exact("the phase before it learns all demonstrated decisions by cross-entropy", lambda: probes.formula_gap(
              recipe().before[0].recipe, probes.sequences(),
              lambda seen: -by_hand.mean_of_decisions(seen.logp(), seen.experience)), at_most=1e-9, of="phases"),
        refuses("a task without prompts is refused", recipe, cartpole),
        Measured("the gradients of log P(y) and log P(y | x) of a sampled answer are closer than those of two answers: "
                 "difference of the mean cosines", "sorting-5",
                 Computed(alignment, small=partial(alignment, num=3, steps=2)), 0.0, seeds=10, minutes=4.0, looks=2,
                 about=About.MECHANISM),
        Measured("after as many rollouts it is right within 16 tries more often than grpo with a mean over tokens",
                 "sorting-5", recipe(), replace(plain(), before=recipe().before), PassAt(16), seeds=5,
                 minutes=8.0, steps=100, warmup=60, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("right answers learn", WithoutPrompt.apply, "self.coefficient * self.right, self.coefficient * self.wrong",
             "self.coefficient * self.wrong, self.coefficient * self.right"),
        Edit("log-probabilities after the prompt", WithoutPrompt.apply, "logp=logp * bare.mask", "logp=bare.logp"),
        Edit("with the prompt", WithoutPrompt.apply, "task.bare(experience)", "experience"),
        Edit("all rows count in the mean", WithoutPrompt.apply, ", WithoutIdle())", ")"),
        Edit("to the end of the run", WithoutPrompt.apply, ">= self.share", "> 1.0"),
    ),
)
