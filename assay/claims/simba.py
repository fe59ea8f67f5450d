"""Claims of simba: its networks and losses by hand, exact and measured claims, mutants. Axes: B rows, N critics."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.claims import ALONE, About, Claims, Edit, Engine, Exact, Measured, Placement, follows_schedule, pendulum
from assay.claims import probes, same_gradient, same_report, steps
from assay.method import MUJOCO, Draw, sac
from assay.methods.simba import recipe
from assay.models import Residual, ResidualNetworks

SPEC = probes.BOX_SPEC


def with_moments(models: Any) -> None:
    """Sets moments that are not 0 and 1."""
    draw = torch.Generator().manual_seed(0)
    mean, deviation = torch.randn(3, generator=draw), torch.rand(3, generator=draw) + 0.5
    for name in ("actor", "q", "q_target"):
        models[name].body.moments.keep({"mean": mean, "deviation": deviation})


def outputs(model: Any, state: Tensor, blocks: int, members: int, action: Tensor | None = None) -> Tensor:
    """Returns a network's outputs [N, B, out], one member after the other, on standardised states."""
    net, moments = model.body.inner.net, model.body.moments
    net = net if isinstance(net, ResidualNetworks) else net.inner
    rows, found = ((state - moments.mean) / moments.deviation).clamp(-10.0, 10.0), []
    rows = rows if action is None else torch.cat((rows, steps.in_half_ranges(action)), -1)
    for one in range(members):

        def normed(place: int, x: Tensor, one: int = one) -> Tensor:
            centred = x - x.mean(-1, keepdim=True)
            unit = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
            return unit * net.scales[place][one] + net.shifts[place][one]

        def linear(place: int, x: Tensor, one: int = one) -> Tensor:
            return x @ net.weights[place][one] + net.biases[place][one]

        hidden = linear(0, rows)
        for block in range(blocks):
            hidden = hidden + linear(2 * block + 2, torch.relu(linear(2 * block + 1, normed(block, hidden))))
        found.append(linear(2 * blocks + 1, normed(blocks, hidden)))
    return torch.stack(found)


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns sac's losses with these networks."""
    step, models = steps.step_of(seen), seen.models
    with_moments(models)

    def sampled(state: Tensor, tag: int) -> tuple[Tensor, Tensor]:
        mean, log_std = outputs(models["actor"], state, 1, 1)[0].chunk(2, -1)
        noise = steps.normal(seen.uniform(1, 2, tag=tag)[:, 0])
        latent = mean + log_std.clamp(-20.0, 2.0).exp() * noise
        density = torch.distributions.Normal(mean, log_std.clamp(-20.0, 2.0).exp()).log_prob(latent)
        slope = 2.0 * (torch.logaddexp(latent, -latent) - torch.log(torch.tensor(2.0, dtype=torch.float64)))
        return steps.CENTRE + steps.HALF * latent.tanh(), (density + slope).sum(-1)

    def q(name: str, state: Tensor, action: Tensor) -> Tensor:
        return outputs(models[name], state, 2, 2, action).squeeze(-1)

    log_temperature = models["temperature"].log_value
    onward, logp = sampled(step.after, 2)
    soft = q("q_target", step.after, onward).amin(0) - log_temperature.exp() * logp
    action, own = sampled(step.now, 1)
    climbed = log_temperature.exp().detach() * own - q("q", step.now, action).amin(0)
    error = q("q", step.now, step.action) - step.target(0.99, soft)
    actor = step.mean(climbed - log_temperature * (own.detach() - 2.0))
    return {"critic": step.mean(error.square()) / 2, "actor": actor}


def report(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns what an update reports."""
    step, q = steps.step_of(seen), partial(steps.output, seen.models["q"])
    recorded = q(step.now, step.action)
    return steps.sac_report(seen, recorded, recorded - steps.soft_target(seen), lambda *pair: q(*pair).amin(0))


def moments_gap() -> float:
    """Returns how far mean and deviation in each model are, in a rollout, from those of what sac's first one meets."""
    task, small = pendulum(), SMALL()
    engine = Engine(small, task.spec, 0, Placement())
    scene = ALONE.given(task=task, models=engine, actor=engine.model("actor"), draw=Draw(0))
    plain, ours = sac().rollout, small.rollout
    assert plain is not None
    assert ours is not None
    first = plain(scene, plain.init(scene))
    met = first.context["observation"][first.mask].double()
    ours(scene, ours.init(scene))
    bodies = [engine.model(name).body for name in ("actor", "q", "q_target")]
    gaps = [(met.mean(0) - one.moments.mean, met.std(0, correction=0) - one.moments.deviation) for one in bodies]
    return probes.worst(*(float(gap.abs().max()) for pair in gaps for gap in pair))


DATA = partial(probes.transitions, num=64)
SMALL = partial(recipe, actor_width=16, critic_width=16)

CLAIMS = Claims(
    mutants=(
        Edit("no residual path", ResidualNetworks.forward, "hidden + self.layer", "self.layer"),
        Edit("no norm before a block", ResidualNetworks.forward, "self.normed(block, hidden, num)", "hidden"),
        Edit("as many units inside a block as outside", Residual.network, "self.blocks, ask.gain", "1, ask.gain"),
    ),
    claims=(
        same_gradient("its gradients are those of the formulas", SMALL, losses_by_hand, DATA, SPEC, at_most=1e-6),
        same_report(SMALL, report, DATA, SPEC),
        follows_schedule("target critics follow at rate 0.005", SMALL),
        Exact("its networks see mean and deviation of the observations met before a rollout", moments_gap,
              at_most=1e-5),
        Measured("on HalfCheetah it scores higher than sac after 100,000 decisions", "HalfCheetah-v5",
                 recipe(MUJOCO, 128, 512), sac(MUJOCO), seeds=5, minutes=900.0, steps=12_500, looks=3,
                 about=About.HEADLINE),
    ),
)
