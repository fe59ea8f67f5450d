"""The functions behind rlpr's claims: its reward on networks, the filter, the loss by hand, the AUC.

Axes: B sequences, T decisions.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from assay.claims import ALONE, About, Claims, Computed, Edit, Exact, Loop, Measured, bandit, by_hand, probes, refuses
from assay.claims import same_gradient, sorting
from assay.method import TABLE, Draw, Recipe, Scene, recipes
from assay.methods.rlpr import ReasoningOnly, ReferenceProbability, recipe
from assay.parts import Reduce, mean_probability
from assay.parts.rewards.likelihood import likelihood
from assay.tasks.language.scratch import scratch


# ---------------------------------------------------------------------------------------------------- the reward
def reward_error(recipe: Recipe) -> float:
    """On networks: the reward minus 0.9 max(0, B - A0) + 0.1 format with one softmax for each reference token, decoded
    in turn: marked, at once, without a mark, with two, cut, and a row that left training.
    """
    task, said = scratch(3), ["012>31", ">22", "4>0", "9", "1>2>3", "7>", "3>1", "3>1"]
    loop = Loop(recipe.set("actor.width", 16).set("actor.layers", 1), task, seed=3, num_steps=1)
    actor, start = loop.engine.models["actor"], loop.engine.models["start"]
    for parameter in start.parameters():  # sharp and mostly wrong, so that the actor is above it on most rows
        parameter.data.mul_(6.0)
    batch = probes.completed(task, said, [0, 1, 1, 1, 1, 2, 3, 4], cut=[6], faults=[7])
    paid, error = probes.rewarded(recipe, task, batch, loop.engine), float(batch.mask[7].any())
    for row, told in enumerate(task.texts(batch, 0)):
        (z, mark, rest), once = said[row].partition(">"), said[row].count(">") == 1
        own, plain = (
            probes.decoded_logp(model, task.told([before])[0], task.tokenizer.encode(told["answer"])).exp().mean()
            for model, before in ((actor, told["prompt"] + z + mark), (start, told["prompt"] + ">"))
        )
        right = 0.9 * max(0.0, float(own * once - plain)) + 0.1 * (bool(rest) and once)
        error = probes.worst(error, abs((right if row < 7 else 0.0) - float(paid[row])))
    return error


def loss_by_hand(seen: probes.Seen) -> Tensor:
    return by_hand.grpo_loss(seen, by_hand.standardised(seen.experience, epsilon=1e-6), 0.2, 0.27)


# ---------------------------------------------------------------------------------------------------- the filter
def filtered(recipe: Recipe) -> tuple[list[int], float]:
    """The groups that are kept in ten batches of two, with deviations (n - 1) of 0.025, 0.05, ..., 0.25, then in one of
    three with 0.30, 0.10 and 0.04; and E at the end. The mean of the sixth to the tenth is 0.2.
    """
    assert recipe.select is not None
    state, kept = recipe.select.init(ALONE), list[int]()
    for deviations in [*([0.025 * number] * 2 for number in range(1, 11)), [0.30, 0.10, 0.04]]:
        rewards = [value for one in deviations for value in (0.5, 0.5 + one * 2.0**0.5)]
        rows = probes.bandit_experience([0] * len(rewards), rewards, torch.zeros(2), members=2)
        group = recipe.select(rows, ALONE, state).group
        kept += sorted(set(() if group is None else group.tolist()))
    return kept, state["mean"]


# ---------------------------------------------------------------------------------------------------- what is trained
def trained_tokens(recipe: Recipe) -> list[int]:
    """Returns how many tokens of each answer have an advantage and are in the loss: up to the only mark, else all. Each
    answer has six tokens with its end.
    """
    task, said = scratch(4), ["12>34", ">1234", "1234>", "12345", "1>2>3"]
    rows = probes.completed(task, said, [0] * len(said))
    rows = rows.add({"advantage": torch.ones_like(rows.reward) * rows.mask})
    assert isinstance(recipe.credit[-1], ReasoningOnly)
    left = recipe.credit[-1](rows, Scene(task))
    assert bool(((left.column("advantage") != 0) == left.mask).all())
    return left.mask.sum(1).tolist()


def rounds_without_signal(recipe: Recipe) -> float:
    """Returns the rounds of 8 starts x 8 samples of one step where all rewards are equal and E is 1."""
    ours = replace(recipe, rewards=(), credit=recipe.credit[:1])
    loop = Loop(ours, bandit((0.5, 0.5)), seed=0, num_steps=1)
    loop.states["select"] = {"mean": 1.0, "batches": 10}
    loop.step()
    return loop.progress.decisions / 64


# ---------------------------------------------------------------------------------------------------- measured
def auc_above_likelihood(seed: int, ours: Reduce, theirs: Reduce, warm: int = 100, num: int = 64) -> float:
    """AUC, for right against wrong rollouts of a start, of the reward with one reduction minus that with another; of
    eight answers to each of `num` prompts after `warm` supervised steps.
    """
    task = scratch(3)
    loop = probes.trained(recipes.sft(), task, seed, warm)
    starts, samples = np.repeat(np.arange(num), 8), np.tile(np.arange(8), num)
    played = task.play(loop.actor, starts, samples, Draw(seed, (1,)), split=1, greedy=False)
    right = task.judge(played, 1).column("score") > 0.5
    made = [ReferenceProbability(one, start="actor") for one in (ours, theirs)]
    paid = [part(played, Scene(task, loop.engine, split=1)).column("score") for part in made]
    return probes.auc(paid[0], right) - probes.auc(paid[1], right)


above_likelihood = partial(auc_above_likelihood, ours=mean_probability, theirs=likelihood)


CLAIMS = Claims(
    claims=(
        Exact("on networks the reward is 0.9 max(0, B - A0) + 0.1 format, with one softmax for each reference token",
              lambda: reward_error(recipe()), equals=0.0),
        Exact("E starts as the mean of batches 6 to 10, none is dropped before; .30 and .10 pass E = .2, .04 does not",
              lambda: filtered(recipe())[0] != [0, 1] * 11, equals=0.0),
        Exact("after its start E is .99 E + .01 mean", lambda: filtered(recipe())[1], equals=0.1994667),
        Exact("tokens after the only mark are not trained on, all are without one and with two",
              lambda: probes.distance(trained_tokens(recipe()), [3, 1, 5, 6, 6]), equals=0.0),
        Exact("where no group differs enough three rounds are sampled", lambda: rounds_without_signal(recipe(TABLE)),
              equals=3.0),
        refuses("a task that does not say what ends the reasoning is refused", recipe, lambda: sorting(3)),
        same_gradient("for given rewards its gradient is grpo's with clip 0.2 / 0.27",
                      lambda: replace(recipe(), rewards=()), loss_by_hand),
        Measured("the reward tells right rollouts from wrong ones better (AUC) than with the likelihood of the answer",
                 "", Computed(above_likelihood, small=partial(above_likelihood, warm=20, num=16)), 0.0,
                 seeds=5, minutes=2.0, about=About.MECHANISM),
        Measured("without the verifier the held-out score is at most 0.1 below that of grpo with it", "scratch",
                 recipe(), recipes.grpo(), margin=-0.1, seeds=5, minutes=8.0, steps=60, about=About.HEADLINE),
    ),
    mutants=(
        Edit("own answers are trained on", ReasoningOnly.apply, "said.count(mark) == 1", "False"),
    ),
)
