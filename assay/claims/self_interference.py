"""Claims of self-interference: its loss and its probe by hand, exact and measured claims, mutants.

Axes: B sequences, T decisions, N prompts.
"""

import math
from dataclasses import replace

import numpy as np
import torch

from assay.claims import About, AtEqual, Average, Claims, Edit, Exact, Expect, Loop, Measured, addition, by_hand
from assay.claims import cartpole, probes, refuses, same_gradient
from assay.claims.testbeds.language.sparse import levels
from assay.method import BIGRAMS, Recipe, Scene, recipes
from assay.methods.self_interference import Interference, log_changes, recipe
from assay.parts import WithGreedy


def step(success: float) -> torch.Tensor:
    """Returns the expected step of the right one of two logits with this success, over all groups of 8."""
    logits = torch.tensor([success, 1.0 - success]).double().log()
    return -probes.expected_gradient(recipe(), logits, torch.tensor([1.0, 0.0]).double(), members=8)[0]


def moved_by_solved_prompts() -> float:
    """Returns moved weights, and decisions beyond the greedy ones, of a step in which every answer is right."""
    loop = Loop(recipe(BIGRAMS), levels(easy=1.0, solved=100), seed=0, num_steps=1)
    before = [tensor.detach().clone() for tensor in loop.actor.parameters()]
    fresh = loop.step().fresh
    assert fresh is not None
    pairs = zip(before, loop.actor.parameters(), strict=True)
    moved = sum(float((old - new).detach().abs().sum()) for old, new in pairs)
    return moved + float(fresh.mask.sum()) + loop.progress.decisions - 32 * 2


def probe_gap(ours: Recipe) -> float:
    """Returns how far what the probe logs after two updates is from numbers by hand: demonstrations decoded token by
    token by three policies, those of the prompts in the batch of the second update left out.
    """
    task = addition(1)
    probe = ours.credit[0]
    assert isinstance(probe, Interference)
    probe = replace(probe, answers=6)
    actors = [probes.small_policy(task, seed) for seed in range(3)]
    items = task.items_of(np.arange(6), 0)
    before = task.told([item.prompt for item in items])
    shown = [[*task.tokenizer.encode(item.demonstration), task.tokenizer.vocabulary.eos] for item in items]
    pairs = list(zip(before, shown, strict=True))
    logp = [[float(probes.decoded_logp(actor, *one).sum()) for one in pairs] for actor in actors]
    scene = Scene(task)
    state = probe.init(scene)
    for actor, batch in zip(actors, ([0, 1, 3], [2, 4, 1], [5, 5, 5]), strict=True):
        scene = Scene(task, probes.Only(actor))
        probe(probes.completed(task, ["7", "12", "3"], batch, faults=[2]), scene, state)
    drawn = {items[2].prompt, items[4].prompt}
    change = [logp[2][one] - logp[1][one] for one in range(6) if items[one].prompt not in drawn]
    start, end = ([math.exp(one) for one in logp[which]] for which in (0, 2))
    slope = np.polyfit(start, np.subtract(end, start), 1)[0]
    expected = {
        "interference": (sum(one < 0 for one in change), len(change)),
        "interference_change": (sum(change), len(change)), "winner_slope": (slope, 1.0),
    }  # fmt: skip
    found = torch.tensor([scene.metrics[name][0] for name in expected])
    return probes.distance(found, torch.tensor(list(expected.values())))


def probed(ours: Recipe) -> Recipe:
    """Returns a recipe with the probe, on 8 of the 16 prompts at a time, where four features are shared by all."""
    credit = (Interference(), *(part for part in ours.credit if not isinstance(part, Interference)))
    return replace(ours, credit=credit).set("actor.rank", 4).set("rollout.num_starts", 8)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("the last two of greedy outcomes 1, 0 and 0.5 are sampled, as grpo would sample them alone",
              lambda: probes.greedy_gap(recipe(), (1.0, 0.0, 0.5), (1, 2)), equals=0.0),
        Exact("if all prompts are solved nothing is updated, and the greedy tokens are spent", moved_by_solved_prompts,
              equals=0.0),
        Exact("the probe logs what updates did to right answers of prompts outside of their batch",
              lambda: probe_gap(recipe()), at_most=1e-5),
        refuses("a task of returns is refused", recipe, cartpole),
        Measured("where contexts share parameters it has a higher pass@64 than grpo at an equal pass rate", "many-ways",
                 recipe(BIGRAMS).set("actor.rank", 4), recipes.grpo(BIGRAMS).set("actor.rank", 4), AtEqual("pass@64"),
                 seeds=10, minutes=6.0, steps=100, looks=2, about=About.HEADLINE),
        Measured("where contexts share parameters a step of grpo lowers right answers of other prompts, mean over "
                 "the run", "many-ways", probed(recipes.grpo(BIGRAMS)), 0.0, Average("interference_change"),
                 Expect.BELOW, minutes=4.0, steps=60, looks=2, about=About.HEADLINE),
        Measured("where contexts share parameters its steps lower right answers of other prompts less than grpo's do",
                 "many-ways", probed(recipe(BIGRAMS)), probed(recipes.grpo(BIGRAMS)), Average("interference_change"),
                 minutes=4.0, steps=60, looks=2, about=About.MECHANISM),
    ),
    mutants=(
        Edit("prompts of the batch count too", log_changes, "(now_N - before)[is_other]", "now_N - before"),
        Edit("changes since the start", Interference.apply, "logp=now.tolist(),",
             'logp=state.get("first", now.tolist()),'),
        Edit("a partial reward counts as solved", WithGreedy.__call__, "~groups.is_right(greedy)",
             "(groups.outcome(greedy) <= 0)"),
        Edit("the solved ones are kept", WithGreedy.__call__, "~groups.is_right(greedy)",
             "groups.is_right(greedy)"),
        Edit("decided by a sample", WithGreedy.__call__, "greedy=True", "greedy=False"),
        Edit("greedy tokens are free", WithGreedy.__call__, "scene.log(DISCARDED, float(greedy.mask.sum()))", "pass"),
        Edit("all solved: the greedy answers learn", WithGreedy.__call__, "mask=torch.zeros_like(greedy.mask)",
             "mask=greedy.mask"),
    ),
)
