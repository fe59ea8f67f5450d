"""Claims of famo2o: its losses by hand, the member that acts, its limit, a measured claim. Axes: B, T, A actions."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from assay.claims import About, Claims, Edit, Exact, Measured, StageView, built, follows_schedule, probes, reads_dataset
from assay.claims import same_gradient, steps
from assay.method import Draw, Recipe
from assay.methods.famo2o import ChooseBalance, FamilyPolicy, FamilyRegression, embedded, fine_tuned, recipe
from assay.parts import AdvantageRegression, Log, ReturnRange

SPEC = probes.BOX_SPEC


def features(c: Tensor) -> Tensor:
    """Returns sin and cos of c, of c / 10000^(1/3) and of c / 10000^(2/3), one after the other, of c [B]."""
    angles = [c / 10_000.0 ** (k / 3.0) for k in range(3)]
    return torch.stack([f(angle) for angle in angles for f in (torch.sin, torch.cos)], 1)


def chosen(actor: Any, seen: Tensor, uniform: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Returns the balance model's coefficient [B] and its log-density, that of x in (-1, 1)."""
    mean, log_std = steps.output(actor.balance, seen).unbind(1)
    log_std, noise = log_std.clamp(-20.0, 2.0), steps.normal(uniform)
    latent = mean + log_std.exp() * noise
    # 1 - tanh(x)^2 = 1 / cosh(x)^2
    slope = -2.0 * (torch.logaddexp(latent, -latent) - math.log(2.0))
    logp = -noise.square() / 2 - math.log(2.0 * math.pi) / 2 - log_std - slope
    return low + (latent.tanh() + 1.0) / 2.0 * (high - low), logp


def losses_by_hand(seen: probes.Seen, low: float = 1.0, high: float = 5.0, online: bool = False) -> dict[str, Tensor]:
    data = seen.experience
    seen = replace(seen, experience=replace(data, reward=0.1 * data.reward)) if online else seen
    step, models, q = steps.step_of(seen), seen.models, steps.output
    actor: Any = models["actor"]
    fixed = {name: value.detach() for name, value in actor.body.named_parameters()}
    temperature, deviation = models["temperature"].log_value.exp(), actor.log_std.exp()
    first, second = seen.uniform(1, 1, tag=7)[:, 0, 0].double(), seen.uniform(1, 1, tag=8)[:, 0, 0]
    c = chosen(actor, step.now, first, low, high)[0].detach() if online else low + (high - low) * first
    gain = q(models["q_target"], step.now, step.action).amin(0) - steps.output(models["value"], step.now)
    weight = torch.minimum((c * gain).exp(), torch.tensor(100.0)).detach()
    member = {"observation": torch.cat((step.now, features(c)), 1)}
    error = (steps.in_half_ranges(step.action) - actor.body(member)) / deviation
    cloned = step.mean(weight * (error.square() / 2 + actor.log_std).sum(1))
    c, logp = chosen(actor, step.now, second, low, high)
    there = {"observation": torch.cat((step.now, features(c)), 1)}
    noise = deviation.detach() * steps.normal(seen.uniform(1, 2, tag=9)[:, 0])
    scaled = functional_call(actor.body, fixed, (there,)) + noise
    worth = q(models["q_target"], step.now, steps.CENTRE + steps.HALF * scaled).amin(0)
    balance = step.mean(temperature.detach() * logp - worth) + temperature * step.mean(-logp.detach() + 0.5)
    return {**steps.iql(seen, 0.99, 0.7), "actor": cloned + balance}


def acting_gap() -> float:
    """Returns the gap of decisions to those of the member with the mode of the balance model, in 64 states."""
    actor: Any = built(recipe(), SPEC).models["actor"]
    seen = 3.0 * torch.randn(64, 3, generator=torch.Generator().manual_seed(3)).double()
    uniform = torch.rand(64, 2, generator=torch.Generator().manual_seed(4)).double()
    c = 1.0 + 2.0 * (steps.output(actor.balance, seen)[:, 0].tanh() + 1.0)
    mean = actor.body({"observation": torch.cat((seen, features(c)), 1)})
    by_hand = steps.CENTRE + steps.HALF * (mean + actor.log_std.exp() * steps.normal(uniform))
    gap = actor.act({"observation": seen}, uniform)[0] - by_hand
    return probes.worst(float(gap.abs().max().detach()))


def gap_to_iql() -> float:
    """Returns the gap of the loss of a family of the coefficient 3 to iql's loss of the same policy."""
    engine, data = built(recipe(lowest=3.0, highest=3.0), SPEC), probes.far_transitions()
    rows = data.add({"row": torch.arange(len(data))})
    view = StageView(engine.models, rows, AdvantageRegression.needs, Draw(0))
    ours, base = (term(rows, view).sum for term in (FamilyRegression(), AdvantageRegression(3.0)))
    return probes.worst(float((ours - base).detach().abs()))


def of_eight() -> float:
    """Returns the gap of e(8) to six numbers."""
    by_hand = torch.tensor((0.989358, -0.145500, 0.362852, 0.931847, 0.017235, 0.999851))
    return float((embedded(torch.tensor([8.0])) - by_hand).abs().max())


def online(low: float = 1.0, high: float = 5.0) -> Recipe:
    """Returns the online phase alone."""
    return replace(fine_tuned(lowest=low, highest=high), before=())


HANDED = ("actor", "temperature", "value", "q", "q_target")
CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand, probes.far_transitions, SPEC,
                      1e-6),
        same_gradient("online its coefficients are those that the balance model draws, its rewards a tenth", online,
                      partial(losses_by_hand, online=True), probes.far_transitions, SPEC, 1e-6),
        Exact("it acts by the member that the mode of the balance model names", acting_gap, at_most=1e-9, of="acting"),
        Exact("a family of the coefficient 3 has the loss of iql", gap_to_iql, at_most=1e-9, illustrates=True),
        Exact("the features of the coefficient 8 are six numbers by hand", of_eight, at_most=1e-6, illustrates=True),
        follows_schedule("target critics follow at rate 0.005", recipe,
                         dict.fromkeys(("actor", "value", "q", "temperature"), 1)),
        reads_dataset(lambda: recipe(log=Log(3)), scale=ReturnRange(),
                      name="a step's batches are rows of the dataset, rewards in units of the range of returns"),
        Exact("the online phase begins with the models of the offline one",
              lambda: probes.hand_off_gap(fine_tuned(), HANDED, SPEC), equals=0.0, of="phases"),
        # What would refute it: that states do not ask for different coefficients.
        Measured("trained on online it scores higher than with iql's coefficient 3 in every state", "pendulum",
                 replace(fine_tuned(), steps=60), replace(fine_tuned(lowest=3.0, highest=3.0), steps=60), seeds=5,
                 minutes=15, steps=60, about=About.HEADLINE),
    ),
    mutants=(
        Edit("the balance model seeks low values", ChooseBalance.__call__, "- raised", "+ raised"),
        Edit("the family learns from the critic", ChooseBalance.__call__, "value.detach()\n", "value\n"),
        Edit("entropy is not wanted", ChooseBalance.__call__, "temperature.detach() * logp", "0.0 * logp"),
        Edit("the trained critics choose", ChooseBalance.__call__, "view.model(self.q)", 'view.model("q")'),
        Edit("one weight for all members", FamilyRegression.__call__, "coefficient.squeeze(-1) * gain", "3.0 * gain"),
        Edit("weights by the mean over the batch, the authors' code", FamilyRegression.__call__,
             "coefficient.squeeze(-1) * gain", "coefficient.mean() * gain"),
        Edit("a member that does not know its coefficient", FamilyPolicy.given, "embedded(coefficient)",
             "0.0 * embedded(coefficient)"),
        Edit("coefficients within half of the range", FamilyRegression.__call__, "2.0 * draw - 1.0", "draw - 0.5"),
        Edit("sines, then cosines", embedded, ", -1).flatten(-2)", ", -2).flatten(-2)"),
    ),
)
