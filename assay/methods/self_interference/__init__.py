"""self-interference: grpo on the prompts whose greedy answer is wrong; the others are not sampled.

    keep x if R(x, greedy answer) < 1, then grpo's loss on groups of the kept prompts alone

2025 (arXiv:2510.02230, SELF). Prompts share parameters, so that learning one lowers the right answers of others
(negative interference), and the expected step on a prompt of success q is q (1 - q) of a logit, 5 times less at 0.05
than at 0.5: what is already likely wins. Dropping the prompts that the policy already solves leaves the steps to the
others. The selection is of the current policy, at every batch. A batch that shrinks weighs its prompts more.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import Edit, Exact, Final, Measured, Method, by_hand, probes, same_gradient
from assay.core.recipe import Recipe
from assay.engine.loop import Loop
from assay.parts.rollouts.greedy import WithGreedy
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults
from assay.tasks.control.cartpole import cartpole
from assay.tasks.testbeds.language.sparse import levels


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    base = recipes.grpo(world)
    assert base.rollout is not None
    return replace(base, name="self-interference", rollout=WithGreedy(base.rollout, skip=True))


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


METHOD = Method(
    paper="arXiv:2510.02230",
    recipe=recipe,
    worlds=(LANGUAGE,),
    family="curriculum",
    base=recipes.grpo,
    departures=(
        "the released code is the definition; the forward KL of secondary texts is not in it (see dph-rl)",
        "a batch whose prompts are all solved is a step without an update, not replaced by the next batch",
        "no prompt is repeated to fill a batch up to a multiple of the number of workers",
        "one design was tried; it learns more slowly: pass rate 0.18 against grpo's 0.32 (3 pilot seeds)",
        "a mean over each sequence as in grpo; 1e-4 beside the deviation instead of 1e-6",
    ),
    claims=(
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("of greedy outcomes 1, 0 and 0.5 the last two are sampled, as grpo would sample them alone",
              lambda: probes.greedy_gap(recipe(), (1.0, 0.0, 0.5), (1, 2)), equals=0.0),
        Exact("if all are solved nothing is updated, and the greedy tokens are spent", moved_by_solved_prompts,
              equals=0.0),
        Exact("a task of returns is refused", lambda: probes.is_refused(recipe(), cartpole()), equals=1.0),
        Exact("the expected step of a prompt of success 0.3", lambda: step(0.3), equals=0.3856, tolerance=2e-4),
        Exact("what the gate saves at success 0.9", lambda: step(0.9), equals=0.1960, tolerance=2e-4),
        Exact("a step does not prefer the easy side: 0.1 and 0.9 move alike", lambda: step(0.1) - step(0.9),
              equals=0.0, tolerance=1e-9),
        Measured("where contexts share parameters it keeps more of pass@64 than grpo at equal steps", "many-ways",
                 recipe(BIGRAMS).set("actor.rank", 4), recipes.grpo(BIGRAMS).set("actor.rank", 4), Final("pass@64"),
                 seeds=10, minutes=6.0, steps=100, looks=2),
    ),
    mutants=(
        Edit("a partial reward counts as solved", WithGreedy.__call__, "outcome < self.solved", "outcome <= 0"),
        Edit("the solved ones are kept", WithGreedy.__call__, "outcome < self.solved", "outcome >= self.solved"),
        Edit("decided by a sample", WithGreedy.__call__, "greedy=True", "greedy=False"),
        Edit("greedy tokens are free", WithGreedy.__call__, "scene.log(DISCARDED, float(greedy.mask.sum()))", "pass"),
        Edit("all solved: the greedy answers learn", WithGreedy.__call__, "mask=torch.zeros_like(greedy.mask)",
             "mask=greedy.mask"),
    ),
)  # fmt: skip
