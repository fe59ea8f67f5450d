"""The three phases of uni-o4 by hand. Axes: N = 4 members, B transitions or sequences, A actions."""

from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from assay.claims import About, Average, Claims, Edit, Exact, Measured, built, by_hand, pendulum, probes, reads_dataset
from assay.claims import same_gradient
from assay.claims.probes import BOX_SPEC, steps
from assay.method import Experience, Recipe
from assay.methods.uni_o4.base import cloned, improved, uni_o4
from assay.methods.uni_o4.losses import Ended, ModelScore
from assay.methods.uni_o4.models import GaussianCommittee, WithinBounds
from assay.methods.uni_o4.offline import Rising


def normals(actor: Any, seen: Tensor) -> Any:
    """Returns every member's distribution of actions in half-ranges, in the states [..., 3]: N first."""
    mean = actor.body({"observation": seen}).tanh()
    spread = actor.log_std.exp().view(4, *[1] * (mean.dim() - 2), 2)
    return torch.distributions.Normal(mean, spread.expand_as(mean))


def inside(action: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(action, steps.LOW), steps.HIGH)


def of(model: Any, seen: Tensor, action: Tensor) -> Tensor:
    """Returns what a critic or the dynamics say of the executed action, [members, ...]."""
    return steps.output(model.inner, seen, inside(action))


def beyond_bounds() -> Experience:
    """Returns transitions of which some actions exceed the bounds."""
    data = probes.transitions(num=64)
    return replace(data, action=1.5 * data.action)


def cloning_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    step, models, data = steps.step_of(seen), seen.models, seen.experience
    logp = normals(models["actor"], step.now).log_prob(steps.in_half_ranges(step.action)).sum(-1)
    change = torch.cat((step.after - step.now, step.reward.unsqueeze(-1)), -1)
    missed = (of(models["dynamics"], step.now, step.action) - change).square().sum(-1)
    critics = {"value": models["value"], "q": models["q"].inner, "q_target": models["q_target"].inner}
    executed = replace(seen, models=critics, experience=replace(data, action=inside(data.action)))
    logit = of(models["end"], step.now, step.action)[0]
    end = torch.nn.functional.softplus(logit) - (1.0 - step.goes_on) * logit
    losses = {"clone": -1.1 * step.mean(logp), **steps.iql(executed, 0.95, 0.7), "dynamics": step.mean(missed) / 2}
    return losses | {"end": step.mean(end)}


# ---------------------------------------------------------------------------------------------------- offline ppo
def offline_rows() -> Experience:
    """Returns transitions with a member each, actions that may exceed the bounds and log-densities near the actor's."""
    data, member = beyond_bounds(), (torch.arange(64) % 4).unsqueeze(1).expand(64, 2).contiguous()
    data = replace(data, context={**data.context, "member": member})
    actor = built(uni_o4().before[1].recipe, probes.BOX_SPEC).models["actor"]
    every = normals(actor, data.context["observation"]).log_prob(steps.in_half_ranges(data.action)).sum(-1)
    return probes.recorded_near(data, every.gather(0, member.unsqueeze(0))[0], seed=6)


def improving_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    data, models = seen.experience, seen.models
    now, action, here = data.context["observation"][:, 0], data.action[:, 0], data.mask[:, 0]
    every = normals(models["actor"], now)
    logp = torch.stack([every.log_prob(steps.in_half_ranges(action)).sum(-1)[row % 4, row] for row in range(64)])
    advantage = (of(models["q"], now, action).amin(0) - steps.output(models["value"], now)).detach()[here]
    advantage = (advantage - advantage.mean()) / advantage.std()
    gain = by_hand.clipped((logp - data.logp[:, 0])[here].exp(), advantage, low=0.25, high=0.25)
    values, alive = [], [torch.ones(4, 64, dtype=torch.bool)]
    place = now.expand(4, 64, 3)
    for _ in range(10):
        scaled = torch.stack([normals(models["actor"], place[one]).mean[one] for one in range(4)])
        chosen = steps.CENTRE + steps.HALF * scaled
        values.append(of(models["q"], place, chosen).amin(0))
        alive.append(alive[-1] & (of(models["end"], place, chosen)[0].sigmoid() <= 0.5))
        place = place + of(models["dynamics"], place, chosen).mean(0)[..., :3]
    lived = torch.stack(alive[:10]).double()
    assert 0.0 < float(lived.mean()) < 1.0, "some rollouts end in the model, and some do not"
    score = (torch.stack(values) * lived).sum(0) / lived.sum(0)
    gap = models["actor"].standing.unsqueeze(1) - score.detach()
    return {"policy": -gain.mean(), "score": gap[:, here].square().sum() / 2 / here.sum()}


def accepted(recipe: Recipe) -> float:
    """Returns how many of five scores the gate of the old policy accepts, on average over all orders."""
    gate, passed = cast(Any, recipe.copies["old"].gate), 0
    for order in permutations(range(5)):
        state = gate.init()
        for score in order:
            passed += int(gate({"actor": SimpleNamespace(standing=torch.tensor([float(score)]))}, state).sum())
    return passed / 120


def gathered_errors(recipe: Recipe) -> float:
    """Returns rows of the offline rollout that are not one of four members in a recorded state, and the largest gap of
    their log-density to the policy's; infinite if the old policy does not act, or two actions are equal.
    """
    task, source = pendulum(), cast(Any, recipe.rollout).source
    (rows,), actor, _ = probes.gathered(recipe, task)
    states = set(map(tuple, source.logs[0].columns(task)["context.observation"][:, 0].tolist()))
    seen, member = rows.context["observation"][:, 0], rows.context["member"][:, 0]
    wrong = sum(tuple(one) not in states for one in seen.tolist()) + int((member != torch.arange(512) % 4).sum())
    wrong += int((seen[::4] != seen[3::4]).any(1).sum()) + int(rows.reward.any() or rows.terminal.any())
    wrong += int(rows.mask[:, 1].sum())  # the second column is no decision
    gap = (actor.score(rows, frozenset()).logp - rows.logp).abs().max().detach()
    acts = len(rows.action[:, 0].unique()) == 512 and recipe.behaviour == "old"
    return wrong + float(gap) + (0.0 if acts else float("inf"))


# ---------------------------------------------------------------------------------------------------- online ppo
def online_rows(lower: float = 0.0) -> Experience:
    """Returns fragments with log-densities near those of the member with the best standing."""
    data, actor = probes.box_fragments(lower), cast(Any, built(uni_o4(), probes.BOX_SPEC).models["actor"])
    every = normals(actor, data.context["observation"]).log_prob(steps.in_half_ranges(data.action)).sum(-1)
    return probes.recorded_near(data, every[int(actor.standing.argmax())], seed=7)


def online_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    data, actor = seen.experience, seen.models["actor"]
    best, observation = int(actor.standing.argmax()), seen.experience.context["observation"]
    member = normals(actor, observation)
    logp, entropy = member.log_prob(steps.in_half_ranges(data.action)).sum(-1)[best], member.entropy().sum(-1)[best]
    value = seen.models["value"].body({"observation": observation}).view(data.mask.shape)
    return by_hand.ppo(data, logp, entropy, value, discount=0.95, gae_lambda=0.95)


RECIPE = uni_o4()


CLONED = replace(RECIPE, before=(replace(RECIPE.before[0], hands={"actor": "actor", "value": "value"}),))
"""Without the offline steps."""


def handed_wrongly() -> int:
    """Returns which models a phase does not hand to the next: all five to the offline steps, policies and V online."""
    first, second = uni_o4().before
    all_five = {name: name for name in ("actor", "value", "q", "dynamics", "end")}
    return (first.hands != all_five) + (second.hands != {"actor": "actor"})


CLAIMS = Claims(
    mutants=(
        Edit("the worst member goes online", GaussianCommittee.parameters_of, "argmax", "argmin"),
        Edit("the critics see actions beyond the bounds", WithinBounds.forward,
             "torch.minimum(torch.maximum(action, self.low), self.high)", "action"),
        Edit("scores of the first step alone", ModelScore.scores, "range(self.horizon)", "range(1)"),
        Edit("no rollout in the model ends", ModelScore.scores, "end(context, action).mean(0) <= 0.0", "goes_on"),
        Edit("time limits are ends", Ended.__call__, "batch.now.terminal",
             "(batch.now.terminal | batch.now.truncated)"),
        Edit("one model of three", ModelScore.scores, ".mean(0)[:-1]", "[0][:-1]"),
        Edit("the gate is open", Rising.__call__, "goes = score > best", "goes = score == score"),
        Edit("the policy itself acts offline", improved, 'behaviour="old"', 'behaviour="actor"'),
        Edit("the mean in place of an expectile", cloned, "Expectile(0.7)", "Expectile(0.5)"),
    ),
    claims=(
        same_gradient("the gradients of cloning, critics and dynamics are those of the formulas",
                      lambda: uni_o4().before[0].recipe, cloning_by_hand, beyond_bounds, BOX_SPEC, 1e-6),
        reads_dataset(lambda: uni_o4().before[0].recipe,
                      name="cloning, critics and dynamics learn from rows of the dataset"),
        same_gradient("the gradients of offline PPO and of the score along the model are those of the formulas",
                      lambda: uni_o4().before[1].recipe, improving_by_hand, offline_rows, BOX_SPEC, 1e-6),
        Exact("the old policies act in recorded states, each once",
              lambda: gathered_errors(uni_o4().before[1].recipe), at_most=1e-4),
        Exact("its gate passes records: 1 + 1/2 + ... + 1/5 of five scores of one policy",
              lambda: accepted(uni_o4().before[1].recipe), equals=137 / 60),
        same_gradient("the gradients of online PPO of the best member are those of the formulas, rewards as they are",
                      uni_o4, online_by_hand, online_rows, BOX_SPEC),
        replace(same_gradient(
            "the gradients of online PPO are those of the formulas also where most advantages are positive",
            uni_o4, online_by_hand, lambda: online_rows(lower=-1.0), BOX_SPEC,
        ), illustrates=True),
        Exact("each phase starts from the weights of the one before", handed_wrongly, equals=0.0, of="phases"),
        Measured("PPO begins better after the offline steps than after cloning alone", "pendulum", RECIPE,
                 CLONED, Average("evaluation"), seeds=10, looks=2, minutes=8.0, steps=5, about=About.HEADLINE),
    ),
)
