"""Claims of ro2o: its losses by hand, three rows by hand, its limits, measured claims. Axes: B, N critics, n points."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.claims import About, Claims, Dip, Edit, Exact, Measured, StageView, follows_schedule, probes, reads_dataset
from assay.claims import same_gradient, same_weights, steps
from assay.method import CONTINUOUS, Copy, Draw, Recipe, recipes
from assay.methods.ro2o import HANDED, LowerBySpread, Nearby, SmoothPolicy, SmoothValue, recipe
from assay.models import ActionValue, Critic, Perceptron, Policy, SquashedGaussian
from assay.parts import Log, SoftTwin, Td

SPEC, DEVIATION = probes.BOX_SPEC, (0.5, 1.0, 2.0)
FAR = Nearby(4, 0.5)
WEIGHTS = (3.0, 0.7, 1.3)
DATA = partial(probes.transitions, num=64)
terms = partial(recipe, smooth=3.0, spread=0.7, steady=1.3, near=FAR)


def in_units(given: Recipe) -> Recipe:
    """Returns the recipe with the moments of some data in its bodies."""
    deviation = tuple(one - 1e-3 for one in DEVIATION)  # a body divides by 1e-3 more

    def told(model: Any) -> Any:
        return replace(model, body=replace(model.body, mean=(0.1, -0.2, 0.3), deviation=deviation))

    return replace(given, actor=told(given.actor), critics={**given.critics, "q": told(given.critics["q"])})


def losses_by_hand(seen: probes.Seen, doubt: float = 0.1, weights: tuple[float, ...] = WEIGHTS,
                   near: Nearby = FAR, deviation: tuple[float, ...] = (1.0, 1.0, 1.0)) -> dict[str, Tensor]:
    step, models, q = steps.step_of(seen), seen.models, steps.output
    box = near.radius * torch.tensor(deviation).double()

    def around(tag: int) -> list[Tensor]:
        uniform = seen.uniform(1, near.num, 3, tag=tag)[:, 0].double()
        return [step.now + box * (2.0 * uniform[:, j] - 1.0) for j in range(near.num)]

    # sac with the minimum of ten critics
    recorded = q(models["q"], step.now, step.action)
    critic = step.mean((recorded - steps.soft_target(seen, 0.95)).square()) / 2
    # the largest weighted change of values
    rises = [q(models["q"], there, step.action) - recorded for there in around(31)]
    change = [(0.8 * rise.clamp(min=0).square() + 0.2 * rise.clamp(max=0).square()).mean(0) for rise in rises]
    critic = critic + weights[0] * step.mean(torch.stack(change).max(0).values)
    # down by the spread at nearby states and own actions
    drawn = seen.uniform(1, near.num, 2, tag=33)[:, 0]
    for j, there in enumerate(around(32)):
        values = q(models["q"], there, steps.squashed(models["actor"], there, drawn[:, j])[0].detach())
        apart = (values - values.mean(0)).square().sum(0).div(9.0).sqrt()
        goal = (values - doubt * apart).detach()
        critic = critic + weights[1] * step.mean((values - goal).square()) / 10 / near.num
    # the largest divergence of the policy
    gaussians = [normal(models["actor"], there) for there in (step.now, *around(34))]
    kl = torch.distributions.kl_divergence
    moved = [(kl(gaussians[0], one) + kl(one, gaussians[0])).sum(-1) for one in gaussians[1:]]
    actor = steps.sac_actor(seen) + weights[2] * step.mean(torch.stack(moved).max(0).values)
    return {"critic": critic, "actor": actor}


def normal(actor: Any, seen: Tensor) -> torch.distributions.Normal:
    """Returns the policy's Gaussian before tanh."""
    mean, log_std = steps.output(actor, seen).split(2, -1)
    return torch.distributions.Normal(mean, log_std.clamp(-20.0, 2.0).exp())


def base() -> Recipe:
    """Returns sac with ten critics and the networks of the method."""
    body, sac = Perceptron(), recipes.sac(CONTINUOUS)
    critics = {**sac.critics, "q": Critic(body, ActionValue(10))}
    stages = (replace(sac.stages[0], critic=(Td(SoftTwin(0.95)),)), sac.stages[1])
    copies = {"q_target": Copy(of="q", rate=0.02)}
    return replace(sac, actor=Policy(body, SquashedGaussian()), critics=critics, copies=copies, stages=stages)


def at_radius_zero() -> float:
    """Returns the terms of values and policy where all points are the state itself."""
    engine, data, here = probes.formulas.built(terms(), SPEC), DATA(), Nearby(4, 0.0)
    rows = data.add({"row": torch.arange(len(data))})
    view = StageView(engine.models, rows, frozenset(), engine.draw)
    found = (term(rows, view).sum for term in (SmoothValue(3.0, near=here), SmoothPolicy(1.3, here)))
    return probes.worst(*(float(one.detach().abs()) for one in found))


class Three(nn.Module):
    """Critics with the values 1, 2 and 4 everywhere, and a policy of the action 0."""

    num_draws = 1

    def __init__(self) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64))

    def forward(self, context: Any, action: Tensor) -> Tensor:
        """Returns the values [3, B, T, n]."""
        return self.level.view(3, 1, 1, 1).expand(3, *action.shape[:-1])

    def sample(self, context: Any, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the action 0."""
        return torch.zeros_like(uniform), uniform[..., 0]


def pushed() -> Tensor:
    """Returns the value of the term on one row with doubt 1, and its slope by each of the values 1, 2 and 4."""
    three, data = Three(), probes.transitions(num=1)
    view = StageView({"actor": three, "q": three}, data.add({"row": torch.arange(1)}), frozenset(), Draw(0))
    loss = LowerBySpread(1.0, 1.0, Nearby(2, 0.1))(data, view).sum
    return torch.cat((loss.detach().view(1), torch.autograd.grad(loss, three.level)[0]))


def offline(given: Recipe) -> Recipe:
    """Returns the first phase."""
    return given.before[0].recipe


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", terms, losses_by_hand, DATA, SPEC, 1e-6),
        same_gradient("points lie around a state in deviations of the data", lambda: in_units(terms()),
                      partial(losses_by_hand, deviation=DEVIATION), DATA, SPEC, 1e-5),
        same_gradient("offline its gradients are the same formulas' with the doubt 1 at first",
                      lambda: offline(terms()), partial(losses_by_hand, doubt=1.0), DATA, SPEC, 1e-6),
        same_weights("without the terms it is sac with ten critics to the bit",
                     lambda: recipe(smooth=0.0, spread=0.0, steady=0.0), base, num=3, of="variants"),
        Exact("with points at the state itself values and policy are smooth", at_radius_zero, equals=0.0,
              of="a radius of 0"),
        Exact("critics at 1, 2 and 4 are all pushed down with the slope 1.018", lambda: probes.distance(
              pushed(), (2.333333, 1.018350, 1.018350, 1.018350)), at_most=1e-6, illustrates=True),
        follows_schedule("target critics follow at rate 0.02", recipe, targets={"q_target": ("q", 0.02, 1)},
                         of="target networks"),
        Exact("the online phase begins with the models of the offline one",
              lambda: probes.hand_off_gap(recipe(), tuple(HANDED), SPEC), equals=0.0, of="phases"),
        reads_dataset(lambda: offline(recipe(log=Log(3))),
                      name="the offline phase's batches are rows of the dataset"),
        Measured("less is lost when training goes on online than after as many critics without the terms", "pendulum",
                 recipe(), recipe(smooth=0.0, spread=0.0, steady=0.0), metric=Dip(), seeds=5, minutes=8, steps=100,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("the mean over points", SmoothValue.__call__, ".amax(-1)", ".mean(-1)"),
        Edit("falling values weigh more", SmoothValue.__call__, "rise > 0.0", "rise < 0.0"),
        Edit("no gradient at the state itself", SmoothValue.__call__, "q(now.context, now.action)",
             "q(now.context, now.action).detach()"),
        Edit("critics are pulled to their mean", LowerBySpread.__call__, "values.detach() + number(self.doubt) * apart",
             "values.detach().mean(0)"),
        Edit("raised by the spread", LowerBySpread.__call__, "+ number(self.doubt)", "- number(self.doubt)"),
        Edit("the recorded actions at nearby states", LowerBySpread.__call__, "values = q(there, action)",
             'values = q(there, self.near.repeated({"action": now.action})["action"])'),
        Edit("one divergence", SmoothPolicy.__call__, "(there + moved) / here", "1.0"),
        Edit("points on one side", Nearby.around, "tag).to(seen.dtype) - 1.0", "tag).to(seen.dtype)"),
        Edit("points in the task's units", Nearby.around, "self.radius * unit * shift", "self.radius * shift"),
        Edit("a new policy online", recipe, "steps, HANDED)", 'steps, {"q": "q", "q_target": "q_target"})'),
    ),
)
