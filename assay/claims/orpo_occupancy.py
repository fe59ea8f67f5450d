"""What orpo-occupancy's parts compute, against formulas of their own. Axes: B, T, S states, A actions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Measured, by_hand, probes, same_gradient
from assay.engine.evaluation import scores
from assay.method import LANGUAGE, TABLE, Draw, Experience, Origin, Recipe, Scene, k2
from assay.methods.orpo_occupancy import OfAnswers, Penalty, SeenReward, recipe, root_chi_square
from assay.parts import Fragments, KlToReference, Retained
from assay.tasks.control.stepping import Scripted
from assay.tasks.tabular.tomato import STAY, tomato

TOMATO = tomato()


VISITED = probes.of_origins(probes.fragments(), Origin.POLICY, Origin.DATASET)


def rooted(d: Tensor, there: Tensor) -> Tensor:
    """(e^d - 1) / sqrt(c), c the mean over samples without a hundredth at each end; e^d - 1 where c is not positive."""
    excess = d.exp() - 1.0
    kept = sorted(excess[there].tolist())
    kept = kept[len(kept) // 100 : len(kept) - len(kept) // 100]
    centre = sum(kept) / len(kept)
    return excess / centre**0.5 if centre > 0 else excess


def losses_by_hand(
    seen: probes.Seen, worth: Callable[[Tensor, Tensor], Tensor] = rooted, weight: float = 0.2
) -> dict[str, Tensor]:
    data, mask, base = seen.experience, seen.experience.mask, (torch.arange(64) % 2 == 1).unsqueeze(1)
    logit = seen.models["discriminator"].body.table[data.context["state"], data.action, 0]
    told = by_hand.logistic(logit, 1.0)[mask & ~base].mean() + by_hand.logistic(logit, 0.0)[mask & base].mean()
    paid = data.reward - (weight * worth(logit.detach(), mask)).clamp(-10.0, 10.0) * mask
    penalised = replace(seen, experience=replace(data, reward=paid))
    return {"discriminator": told, **by_hand.ppo_losses(penalised, 0.99, 0.95, 0.003 * by_hand.entropy(seen))}


clipped = partial(losses_by_hand, weight=30.0)


def answers_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    data = seen.experience
    d = torch.where(data.mask, data.logp - seen.logp("reference").detach(), 0.0).sum(1)
    paid = (0.2 * rooted(d, data.mask.any(1))).clamp(-10.0, 10.0).unsqueeze(1) * (data.terminal | data.truncated)
    return by_hand.ppo_of_tokens(replace(seen, experience=replace(data, reward=data.reward - paid)))


def step_with_reward(num: int, columns: int, reward: float) -> Experience:
    """Returns fragments of one step in which every decision has this reward, so that its rows are known again."""
    shape = (num, columns)
    mask, no = torch.arange(columns).expand(shape) < columns - 1, torch.zeros(shape, dtype=torch.bool)
    zero = torch.zeros(shape)
    return Experience({"state": zero.long()}, zero.long(), mask, zero, torch.full(shape, reward), no, no)


def wrongly_told_apart(recipe: Recipe) -> int:
    """Returns how many rows are missing in the discriminator's four batches of 128 decisions of the last step and 128
    of the base, or are of the step before.
    """
    source, rollout = recipe.stages[0].source, recipe.rollout
    assert isinstance(source, Retained)
    assert isinstance(rollout, Fragments)
    scene, wrong = Scene(TOMATO), 0
    state = source.init(scene)
    for step in (1, 2):
        fresh = step_with_reward(rollout.num_envs, rollout.steps + 1, -7.0 * step)
        batches = list(source(scene.given(fresh=fresh, draw=Draw(0, (step,))), state))
        wrong += abs(len(batches) - 4)
        for batch in batches:
            own = batch.own()
            wrong += abs(len(own) - 128) + abs(len(batch) - 256) + int((own.reward[:, 0] != -7.0 * step).sum())
    return wrong


# ---------------------------------------------------------------------------------------------------- tables
def occupancy(logits_SA: Tensor, P_SAS: Tensor, discount: float = 0.9) -> Tensor:
    """Discounted visits [S, A] of a softmax table from state 0; they sum to 1."""
    policy = logits_SA.softmax(-1)
    moves = torch.einsum("sa,sax->sx", policy, P_SAS)
    eye = torch.eye(len(moves), dtype=torch.float64)
    return (1 - discount) * torch.linalg.solve(eye - discount * moves.T, eye[0]).unsqueeze(1) * policy


def hacked(recipe: Recipe) -> float:
    """Proxy minus true return of an episode that goes around to the sprinkler and stays, as rewarded and as logged,
    minus all decisions but the first two, each time.
    """
    first, scene, way = np.zeros(1, np.int64), Scene(TOMATO), torch.tensor([STAY, 1, 2, STAY, 0, STAY])
    seen = TOMATO.play(Scripted(lambda at: way[at["state"] // 8]), first, first, Draw(0), split=0, greedy=True)
    for part in recipe.rewards[:2]:
        seen = part(seen, scene)
    logged = scene.metrics["reward/proxy"][0][0] - scene.metrics["reward/true"][0][0]
    return float((seen.reward * seen.mask).sum() - seen.column("score")[0]) + logged - 2.0 * (TOMATO.spec.horizon - 2)


def best_true_return(sweep: Sequence[Recipe], seed: int, steps: int = 60, cloning: int | None = None) -> float:
    """The largest true return on held-out starts among these recipes, each trained on the proxy from one base,
    which is cloned for `cloning` steps, by default its own.
    """
    first = sweep[0].before[0]
    base = probes.trained(first.recipe, TOMATO, seed, cloning or first.steps).actor
    loops = [probes.trained(replace(recipe, before=()), TOMATO, seed, steps, base) for recipe in sweep]
    return max(float(scores(loop.actor, TOMATO, num=50, greedy=False).mean()) for loop in loops)


def action_kl(weight: float) -> Recipe:
    """The rival: weight / (1 - discount) * KL(pi(. | s) || base(. | s)) in the loss, no penalty in the reward."""
    base = recipe(weight=0.0)
    term = KlToReference(weight / (1.0 - TABLE.gae.discount), k2)
    policy = replace(base.stages[1], regularizers=(*base.stages[1].regularizers, term))
    return replace(base, name="action-kl", rewards=base.rewards[:-1], stages=(policy, *base.stages[2:]))


def best_of(sweep: Sequence[Recipe]) -> Computed:
    """Returns the side of `best_true_return`; small, two steps with the last weight."""
    return Computed(partial(best_true_return, sweep), small=partial(best_true_return, sweep[-1:], steps=1, cloning=5))


CLAIMS = Claims(
    mutants=(
        Edit("the penalty is paid", Penalty.__call__, "(-self.weight * cost)", "(self.weight * cost)"),
        Edit("the root is of the whole mean", root_chi_square, "int(trim * len(kept))", "0"),
        Edit("no root", root_chi_square, "centre.sqrt()", "centre"),
        Edit("the true reward is used", SeenReward.apply, "return seen", "return experience"),
        Edit("classes change places", recipe, "*CLASSES", "*CLASSES[::-1][:1]"),
        Edit("visits of the whole history", recipe, "Replay(gathered", "Replay(100 * gathered"),
        Edit("nine tenths of the base", recipe, "kept=0.5", "kept=0.9"),
        Edit("one step of the discriminator", recipe, "updates=4", "updates=1"),
        Edit("answers without the reference", OfAnswers.__call__, "rows.logp - base", "rows.logp"),
    ),
    claims=(
        same_gradient("the base is cloned from its log first: minus the mean log-probability of its decisions",
                      lambda: recipe().before[0].recipe,
                      lambda seen: -by_hand.mean_of_decisions(seen.logp(), seen.experience)),
        same_gradient("its gradients are the discriminator's, and ppo's with the penalty (e^d - 1) / sqrt(chi2)",
                      recipe, losses_by_hand, lambda: VISITED),
        same_gradient("no decision pays or is paid more than the limit", lambda: recipe(weight=30.0), clipped,
                      lambda: VISITED),
        same_gradient("answers pay by the product of their tokens' ratios, once", lambda: recipe(LANGUAGE),
                      answers_by_hand),
        Exact("the discriminator tells the last step's decisions, and no earlier ones, from as many of the base, four "
              "batches a step", lambda: wrongly_told_apart(recipe()), equals=0.0),
        Exact("the sprinkler looks worth 1 a decision and is worth 0; both are logged, the score is the true one",
              lambda: hacked(recipe()), equals=0.0),
        Measured("its best true return over weights is above that of a KL of actions; refuted where that matches it",
                 "", best_of([recipe(weight=weight) for weight in (0.1, 0.3, 1.0)]),
                 best_of([action_kl(weight) for weight in (0.01, 0.03, 0.1)]),
                 margin=10.0, seeds=10, looks=2, minutes=6.0, about=About.HEADLINE),
    ),
)
