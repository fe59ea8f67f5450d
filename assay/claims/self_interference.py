"""Claims of self-interference: its loss by hand, exact and measured claims, mutants."""

import torch

from assay.claims import About, AtEqual, Claims, Edit, Exact, Measured, by_hand, probes, same_gradient
from assay.claims.testbeds.language.sparse import levels
from assay.engine.loop import Loop
from assay.method import BIGRAMS, recipes
from assay.methods.self_interference import recipe
from assay.parts import WithGreedy
from assay.tasks.control.cartpole import cartpole


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


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        Exact("the last two of greedy outcomes 1, 0 and 0.5 are sampled, as grpo would sample them alone",
              lambda: probes.greedy_gap(recipe(), (1.0, 0.0, 0.5), (1, 2)), equals=0.0),
        Exact("if all prompts are solved nothing is updated, and the greedy tokens are spent", moved_by_solved_prompts,
              equals=0.0),
        Exact("a task of returns is refused", lambda: probes.is_refused(recipe(), cartpole()), equals=1.0,
              of="refusals"),
        Measured("where contexts share parameters it has a higher pass@64 than grpo at an equal pass rate", "many-ways",
                 recipe(BIGRAMS).set("actor.rank", 4), recipes.grpo(BIGRAMS).set("actor.rank", 4), AtEqual("pass@64"),
                 seeds=10, minutes=6.0, steps=100, looks=2, about=About.HEADLINE),
    ),
    mutants=(
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
