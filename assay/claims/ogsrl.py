"""Claims of ogsrl: two prices and the model's loss by hand, the guardian's density, imagined episodes, measured claims.

Axes: B sequences, T decisions, M = 5 members.
"""

from dataclasses import replace
from functools import partial
from math import pi, sqrt
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from assay.claims import ALONE, About, Claims, Computed, Edit, Exact, Expect, Final, Loop, Measured, built, by_hand
from assay.claims import pendulum, probes, steps, with_statistics
from assay.claims.testbeds.control.treatment import treatment
from assay.core.slots import Imagined
from assay.method import Draw, Experience, Recipe, Scene
from assay.methods.ogsrl import Guardian, Support, kernel_density, recipe
from assay.parts import Log, Multiplier
from assay.parts.critics.dynamics import followed
from assay.parts.rollouts.imagined import first_states
from assay.tasks.control.hazards import hazards

SPEC = replace(probes.BOX_SPEC, num_costs=1)


def costly(scale: float, other: float) -> Experience:
    """Returns fragments with two costs of a decision, and the totals of the episodes that end in them."""
    data, draw = probes.box_fragments(), torch.Generator().manual_seed(5)
    size = torch.tensor([scale, other])
    cost, total = (size * torch.rand(*data.mask.shape, 2, generator=draw, dtype=torch.float64) for _ in range(2))
    return replace(data, cost=cost).add({"episode_cost": 2.0 * total})


EARLIER = (costly(4.0, 2.5), costly(3.0, 1.5))


def prices() -> list[float]:
    """Returns both multipliers after the earlier batches: 0.05 (J - 1) more for each, never below 0."""
    found = [0.0, 0.0]
    for data in EARLIER:
        level = data.column("episode_cost")[(data.terminal | data.truncated) & data.mask].mean(0)
        found = [max(0.0, price + 0.05 * (float(one) - 1.0)) for price, one in zip(found, level, strict=True)]
    return found


def priced_losses(seen: probes.Seen) -> dict[str, Tensor]:
    data = seen.experience

    def gain(ratio: Tensor, advantage: Tensor) -> Tensor:
        for channel, price in enumerate(prices()):
            cost = cast(Tensor, data.cost)[..., channel]
            to_go = by_hand.gae(replace(data, reward=cost), torch.zeros_like(cost), 0.95, 1.0)
            advantage = (advantage - price * (to_go - to_go[data.mask].mean())) / (1.0 + price)
        return by_hand.clipped(ratio, advantage, 0.2, 0.2)

    return by_hand.ppo_of_torques(seen, gain)


def judged(made: Recipe) -> Recipe:
    """Returns the recipe without its own rewards: the experience has its costs already."""
    return replace(made, rewards=made.rewards[:1])


def moved() -> float:
    """Returns 1 if only the second multiplier rises where only the second cost is above its limit, else 0."""
    data = costly(0.3, 3.0)
    found = []
    for part in recipe().constraints:
        state = part.init(ALONE)
        part(data.add({"advantage": data.reward}), ALONE.given(metrics={}), state)
        found.append(state["multiplier"])
    return float(found[0] == 0.0 < found[1])


# ---------------------------------------------------------------------------------------------------- guardian
ROWS = torch.tensor([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [1.0, 1.0]])


def density_gap() -> float:
    """Returns how far densities of four rows and of two others, as normal densities of one number at 0.535, and their
    lowest quarter are from numbers worked out apart, or 1 if one of three places is on the wrong side.
    """
    support, scale = Support(ROWS, 2.0 * 0.535, 0.25), 1.0 / (0.535 * sqrt(2.0 * pi))
    asked = torch.tensor([[0.05, 0.05], [1.5, 1.5]])
    found = scale * torch.cat((kernel_density(ROWS, torch.cat((ROWS, asked)), 0.535), support.least.view(1)))
    wanted = torch.tensor([0.558473, 0.557530, 0.557530, 0.207875, 0.562365, 0.078144, 0.470117])
    sides = support.outside(torch.cat((asked, ROWS[3:]))).tolist() == [False, True, True]
    return float((found - wanted).abs().max()) if sides else 1.0


def guarded() -> tuple[Experience, Experience, Tensor]:
    """Returns the log of six patients, the same after the guardian, and which decisions a plain sum finds outside."""
    task = treatment(episodes=2)
    log = cast(Any, task).logged(Draw(3))
    wide = replace(log, action=1.3 * log.action)
    part, scene = Guardian(), Scene(task, draw=Draw(3))
    after = part(wide, scene, part.init(scene))
    own, asked = (torch.cat((one.context["observation"], one.action), -1) for one in (log, wide))
    rows = own[log.mask].double()
    low, high = rows.amin(0), rows.amax(0)
    far = ((asked.double().unsqueeze(2) - rows) / ((high - low) / 2)).square().sum(-1)
    near = ((rows.unsqueeze(1) - rows) / ((high - low) / 2)).square().sum(-1)
    least = (-near / 0.08).exp().mean(-1).quantile(0.05)
    return wide, after, ((-far / 0.08).exp().mean(-1) < least) & log.mask


def wrong_costs() -> float:
    """Returns how many costs after the guardian are wrong; infinite unless some decisions are outside, and some not."""
    before, after, outside = guarded()
    assert before.cost is not None
    assert after.cost is not None
    share = float(outside[before.mask].double().mean())
    wrong = (after.cost[..., 0] != before.cost[..., 0]).sum() + (after.cost[..., 1] != outside.float()).sum()
    return float(wrong) if 0.1 < share < 0.9 else float("inf")


# ---------------------------------------------------------------------------------------------------- model
def model_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    step, data, models = steps.step_of(seen), seen.experience, seen.models
    net, actor = models["dynamics"], models["actor"]
    action = steps.in_half_ranges(step.action)
    outputs = net.net({"observation": step.now}, action, None)
    wanted = torch.cat((step.after - step.now, step.reward.unsqueeze(1), cast(Tensor, data.cost)[:, 0]), 1)
    plain = net.spread.unsqueeze(1).expand(-1, len(wanted), -1)
    log_std = -6.0 + 3.5 * (torch.cat((outputs[..., 5:8], plain), -1).tanh() + 1.0)
    missed = ((outputs[..., :5] - wanted).square() / (2 * (2 * log_std).exp()) + log_std).sum(-1)
    chance = outputs[..., 8].sigmoid()
    missed = missed - torch.where(data.terminal[:, 0], chance, 1 - chance).log()
    error = (steps.in_half_ranges(step.action) - steps.output(actor, step.now)) / actor.log_std.exp()
    return {"dynamics": step.mean(missed), "clone": step.mean((error.square() / 2 + actor.log_std).sum(-1))}


@torch.no_grad()
def step_gap() -> float:
    """Returns how far imagined steps are from one member's draw by hand, actions clipped, or the mean of all without
    numbers; infinite unless some steps end and some do not.
    """
    net: Any = built(recipe().before[0].recipe, SPEC).models["dynamics"]
    draw, gap, ends = torch.Generator().manual_seed(4), 0.0, list[Tensor]()
    seen, uniform = torch.randn(64, 3, generator=draw).double(), torch.rand(64, 4, generator=draw).double()
    action = steps.CENTRE + 1.5 * steps.HALF * torch.randn(64, 2, generator=draw).double()
    inside = action.maximum(steps.LOW).minimum(steps.HIGH)
    outputs, row = net.net({"observation": seen}, steps.in_half_ranges(inside), None), torch.arange(64)
    for numbers in (uniform, None):
        found, noise = outputs.mean(0), torch.zeros(64, 3)
        if numbers is not None:
            found, noise = outputs[(5 * numbers[:, 0]).long(), row], steps.normal(numbers[:, 1:])
        after = seen + found[:, :3] + (-6.0 + 3.5 * (found[:, 5:8].tanh() + 1.0)).exp() * noise
        said = net.imagined({"observation": seen}, action, numbers)
        assert said.cost is not None
        pairs = (said.observation, after), (said.reward, found[:, 3]), (said.cost, found[:, 4:5].clamp(min=0.0))
        gap = probes.worst(gap, *(float((one - other).abs().max()) for one, other in pairs))
        gap += float((said.ended != (found[:, 8] > 0.0)).sum())
        ends.append(said.ended)
    return gap if 0 < int(torch.cat(ends).sum()) < 128 else float("inf")


def costly_transitions() -> Experience:
    data = probes.transitions(num=64)
    return replace(data, cost=torch.rand(64, 2, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64))


class Slow:
    """A model in which nothing but the third number moves, by 0.1 a decision, which costs what the first action is."""

    num_step_draws = 1

    def imagined(self, context: Any, action: Tensor, uniform: Tensor) -> Imagined:
        """Returns the step; it ends where the third number is 0.5 or more."""
        after = context["observation"] + torch.tensor([0.0, 0.0, 0.1])
        return Imagined(after, -after[:, 2], action[:, :1], after[:, 2] >= 0.45 + uniform[:, 0] * 0.1)


def wrong_episodes() -> float:
    """Returns how many decisions of gathered episodes are not the model's, from a first state of the log."""
    task, made = treatment(episodes=4), recipe()
    scene = ALONE.given(task=task, models=probes.Only(Slow()), starts=np.arange(8), draw=Draw(1))
    scene = scene.given(actor=probes.small_policy(task))
    assert made.rollout is not None
    played = made.rollout(scene, made.rollout.init(scene))
    seen, mask = played.context["observation"], played.mask
    begins = first_states(Log().laid_out(cast(Any, task).logged(Draw(1))))
    known = ~(seen[:, :1] == begins).all(-1).any(1)
    third = torch.arange(seen.shape[1]) * 0.1
    late = ~((seen[..., 2] - third).abs()[:, :-1] <= 1e-5)
    cost = (cast(Tensor, played.cost)[..., 0] != played.action[..., 0]) & mask
    ends = mask.sum(1)
    wrong = known.sum() + (late & mask[:, :-1]).sum() + cost.sum() + ((ends < 5) | (ends > 6)).sum()
    return float(wrong) if len(mask) == 64 and len(ends.unique()) > 1 else float(len(mask) != 8) + float(wrong)


# ---------------------------------------------------------------------------------------------------- measured
def treated(seed: int, made: Recipe, steps: int | None = None) -> Experience:
    """Returns episodes of 50 true patients, treated by the policy of a run, or of one of so many steps."""
    task = treatment()
    made, first = (with_statistics(one, task, seed) for one in (made, made.before[0].recipe))
    model = probes.trained(first, task, seed, steps or first.steps).engine.models
    loop = Loop(replace(made, before=()), task, seed=seed, num_steps=steps or made.steps)
    for name in ("dynamics", "actor"):
        loop.engine.models[name].load_state_dict(model[name].state_dict())
    for _ in range(steps or made.steps):
        loop.step()
    starts = np.arange(50)
    return task.play(loop.policy, starts, 0 * starts, Draw(0), split=1, greedy=True)


def share_outside(seed: int, made: Recipe) -> float:
    """Returns the share of those patients' decisions that the log of this seed does not support."""
    played = treated(seed, made)
    support = Guardian().init(Scene(treatment(), draw=Draw(seed)))["support"]
    rows = torch.cat((played.context["observation"], played.action), -1)[played.mask]
    return float(support.outside(rows).double().mean())


def outside(made: Recipe) -> Computed:
    """Returns the side of `share_outside`; its small version is the sum of doses after two steps."""
    return Computed(partial(share_outside, made=made), lambda seed: float(treated(seed, made, 2).action.sum()))


CLAIMS = Claims(
    claims=(
        Exact("its gradients are ppo's, on advantages priced by two multipliers, one after the other",
              lambda: probes.formula_gap(judged(recipe()), costly(1.0, 2.0), priced_losses, SPEC, earlier=EARLIER),
              at_most=1e-6),
        Exact("the model's and the clone's gradients are those of their likelihoods",
              lambda: probes.formula_gap(recipe().before[0].recipe, costly_transitions(), model_by_hand, SPEC),
              at_most=1e-6),
        Exact("an imagined step is a draw of one member, without random numbers the mean of all", step_gap,
              at_most=1e-6),
        Exact("densities of four rows and two others, and which are outside, are those worked out by hand",
              density_gap, at_most=2e-6),
        Exact("outside of the log is what a plain sum over its decisions says, after the task's own cost", wrong_costs,
              equals=0.0),
        Exact("episodes are the model's, from first states of the log, with its costs and its ends", wrong_episodes,
              equals=0.0),
        Exact("where only decisions outside are above their limit only their multiplier rises", moved, equals=1.0,
              illustrates=True),
        Exact("without limits its gradients are ppo's",
              lambda: probes.formula_gap(judged(recipe(limit=None, outside=None)), costly(1.0, 2.0),
                                         by_hand.ppo_of_torques, SPEC, earlier=EARLIER), at_most=1e-6, of="a variant"),
        Exact("a task without costs and one with choices are refused",
              lambda: float(probes.is_refused(recipe(), pendulum()) and probes.is_refused(recipe(), hazards())),
              equals=1.0, of="refusals"),
        Measured("fewer of its decisions on true patients are outside of the log than without a guardian, by 0.3",
                 "", outside(recipe()), outside(recipe(outside=None)), expect=Expect.BELOW, margin=0.3, seeds=5,
                 minutes=10.0, about=About.HEADLINE),
        Measured("its true episodes cost less than with a guardian alone by more than 2", "treatment", recipe(),
                 recipe(limit=None), metric=Final("evaluation_cost"), expect=Expect.BELOW, margin=2.0, seeds=5,
                 minutes=12.0, about=About.HEADLINE),
        Measured("its true return is no lower than the log's, -12.75, by more than 0.5", "treatment", recipe(), -12.75,
                 margin=-0.5, seeds=5, minutes=6.0, about=About.HEADLINE),
    ),
    mutants=(
        Edit("one price for both", Multiplier.apply, "self.credit(experience, self.channel)",
             "self.credit(experience, 0)"),
        Edit("the densest are outside", Support.outside, "< self.least", "> self.least"),
        Edit("states and actions in their own units", Support.outside, "(rows - self.centre) / self.half", "rows"),
        Edit("in place of the task's cost", Guardian.apply,
             "cost if experience.cost is None else torch.cat((experience.cost, cost), -1)", "cost"),
        Edit("the model predicts the next observation", followed, ' - now.context["observation"]', ""),
    ),
)
