"""Claims of policy-guided-diffusion: model, sampler and guidance by hand, the product of two Gaussians, mutants.

Axes: N segments, T columns, C channels, K denoising steps.
"""

from dataclasses import replace
from functools import partial
from math import log, pi, sin
from typing import Any

import torch
from torch import Tensor

from assay.claims import ALONE, About, Claims, Computed, Edit, Engine, Exact, Measured, Placement, built, cartpole
from assay.claims import pendulum, probes, same_gradient, steps
from assay.method import CONTINUOUS, CONTROL, AssayError, Draw, Experience, Need, Progress, random, td3_bc
from assay.methods.policy_guided_diffusion import (
    Generated, SegmentModel, Segments, denoised, joined, loss_of, noise_levels, recipe, strength, towards,
)
from assay.parts import Log

SMALL = Segments(length=4, hidden=(8,), updates=3, episodes=30, levels=3)
LOG = Log(3, noise=0.5)


def model_of() -> SegmentModel:
    """Returns a random model of segments of four decisions of BOX_SPEC, with moments that are not 0 and 1."""
    with random.seeded(3):
        model = SegmentModel(probes.BOX_SPEC, 4, (8,)).double()
    draw = torch.Generator().manual_seed(4)
    model.mean.copy_(0.3 * torch.randn(7, generator=draw))
    model.deviation.copy_(0.5 + torch.rand(7, generator=draw))
    return model


def error_by_hand(model: SegmentModel, x: Tensor, draw: torch.Generator) -> Tensor:
    """Returns the mean weighted error of D, segment by segment, in this dtype."""
    log_sigma, noise = 1.2 * torch.randn(len(x), generator=draw) - 1.2, torch.randn(x.shape, generator=draw).to(x)
    total = torch.zeros((), dtype=x.dtype)
    for one, level, own in zip(x, log_sigma.exp(), noise, strict=True):
        sigma = float(level)
        size = 1.0 + sigma**2
        time = steps.times(torch.tensor([0.5 + log(sigma) / 16.0])).to(x.dtype)
        point = one + sigma * own
        found = model.net(torch.cat(((point / size**0.5).flatten(), time))).view_as(one)
        total = total + size / sigma**2 * (point / size + sigma / size**0.5 * found - one).square().mean()
    return total / len(x)


def gradient_gap() -> Tensor:
    """Returns the largest gap of the model's gradient to the formula's, over the largest entry."""
    model, x = model_of(), torch.randn(6, 5, 7, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    losses = (one(model, x, torch.Generator().manual_seed(6)) for one in (loss_of, error_by_hand))
    mine, other = (torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])
                   for loss in losses)  # fmt: skip
    return (mine - other).abs().max() / other.abs().max()


# ---------------------------------------------------------------------------------------------------- the sampler
def product_gap(coefficient: float) -> float:
    """Returns how far mean and variance of samples are from those of N(0, 1) N(2, 1)^coefficient, guided by the exact
    gradient: of log E[N(x0; 2, 1)^coefficient | x], times the step's change of variance.
    """
    num, levels = 400, noise_levels(400)

    def shift(k: int, x: Tensor) -> Tensor:
        now = levels[k]
        up = now * (1.2 if 0.05 <= now <= 50.0 else 1.0)  # 80 / 400
        variance = now**2 / (1.0 + now**2)
        slope = coefficient * (2.0 - x / (1.0 + now**2)) / (1.0 + coefficient * variance) / (1.0 + now**2)
        return x + up * (up - levels[k + 1]) * slope

    start = torch.randn(4000, 1, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = denoised(lambda x, sigma: x / (1.0 + sigma.square()), start, num, shift, 2)
    mean, variance = 2.0 * coefficient / (1.0 + coefficient), 1.0 / (1.0 + coefficient)
    return probes.worst(abs(float(found.mean()) - mean), abs(float(found.var()) - variance))


def sampled_gap(num: int) -> float:
    """Returns the largest gap to a sampler by hand, one number after the other, which notes where it is shifted."""
    places, wanted = list[int](), list[int]()

    def shift(k: int, x: Tensor) -> Tensor:
        places.append(k)
        return x + 0.1 * k

    def score(x: Tensor, sigma: float) -> Tensor:
        return 0.7 * x - (x.sin() if sigma > 1.0 else 0.2 * x)

    start = torch.randn(3, 1, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = denoised(lambda x, sigma: score(x, float(sigma)), start, num, shift, 2)
    levels = [(80 ** (1 / 7) * (1 - k / (num - 1)) + 0.002 ** (1 / 7) * k / (num - 1)) ** 7 for k in range(num)] + [0]
    draw, x = torch.Generator().manual_seed(2), 80.0 * start
    for k in range(num):
        wanted += [k] if k + 1 < num else []
        now, then = levels[k] * 1.0, levels[k + 1]
        up = now * (1 + min(80 / num, 2**0.5 - 1)) if 0.05 <= now <= 50 else now
        noise = torch.randn(x.shape, generator=draw, dtype=x.dtype)
        x = x + (0.1 * k if k + 1 < num else 0.0) + 1.003 * (up * up - now * now) ** 0.5 * noise
        slope = (x - score(x, up)) / up
        first = x + (then - up) * slope
        x = first if not then else x + (then - up) * 0.5 * (slope + (first - score(first, then)) / then)
    return float((found - x).abs().max()) + abs(len(places) - len(wanted))


# ---------------------------------------------------------------------------------------------------- guidance
@torch.no_grad()
def move_gap(k: int, num: int, coefficient: float) -> Tensor:
    """Returns the largest gap of shifted segments to those by hand, for random segments and a random actor."""
    model, actor = model_of(), built(recipe(model=SMALL), probes.BOX_SPEC).models["actor"]
    x = torch.randn(6, 5, 7, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    wanted, size = x.clone(), coefficient * (1 - k / num + 0.3 * sin(pi * (k + 1) / num))
    for one, there in zip(x, wanted, strict=True):
        moves = torch.zeros(4, 2, dtype=torch.float64)
        for t in range(4):
            seen, done = one[t, :3] * model.deviation[:3] + model.mean[:3], slice(3, 5)
            decided = steps.in_half_ranges(steps.bounded(actor, seen.unsqueeze(0)))[0]
            moves[t] = (decided - one[t, done] * model.deviation[done] - model.mean[done]) * model.deviation[done]
        there[:4, 3:5] += size * moves / moves.square().sum().sqrt()
    return (towards(model, actor, coefficient, num)(k, x) - wanted).abs().max()


def strength_gap() -> float:
    numbers = {0: 1.004712, 50: 0.965438, 100: 0.799963, 150: 0.458774, 198: 0.014712}
    return probes.worst(*(abs(strength(k, 200) - number) for k, number in numbers.items()))


@torch.no_grad()
def at_rest() -> float:
    """Returns how far segments move whose actions are the actor's: without a direction it must stay finite."""
    model, actor = model_of(), built(recipe(model=SMALL), probes.BOX_SPEC).models["actor"]
    x = torch.zeros(1, 5, 7, dtype=torch.float64)
    decided = steps.in_half_ranges(steps.bounded(actor, model.mean[:3].unsqueeze(0)))[0]
    x[..., 3:5] = ((decided - model.mean[3:5]) / model.deviation[3:5])
    moved = towards(model, actor, 1.0, 50)(0, x) - x
    return float(moved.abs().max().nan_to_num(1.0))


# ---------------------------------------------------------------------------------------------------- the data
def columns_with_ends() -> dict[str, Tensor]:
    """Returns the log of three episodes, cut to 6 decisions with an end, 3 with an end, 9 that are cut short."""
    whole, rows = LOG.columns(pendulum()), []
    for episode, num in enumerate((6, 3, 9)):
        rows += list(range(200 * episode, 200 * episode + num))
    columns = {name: column[rows].clone() for name, column in whole.items()}
    columns["terminal"][[5, 8], 0], columns["truncated"][17, 0] = True, True
    return columns


def fitted_by_hand(columns: dict[str, Tensor]) -> Tensor:
    """Returns the weights after three updates on the segments of these episodes, listed one by one."""
    raw = [
        [*columns["context.observation"][row, 0].tolist(), float(columns["action"][row, 0]) / 2.0,
         float(columns["reward"][row, 0]), float(columns["terminal"][row, 0])] for row in range(18)
    ]  # fmt: skip
    numbers = torch.tensor(raw, dtype=torch.float64)
    mean, unit = numbers.mean(0), numbers.std(0, correction=0).clamp(min=1e-3)
    segments = []
    for begin, end in ((0, 6), (6, 9), (9, 18)):
        for first in range(begin, end):
            if end == 18 and first + 4 > end:
                continue
            one = torch.zeros(5, 6, dtype=torch.float64)
            for t in range(min(4, end - first)):
                one[t] = (numbers[first + t] - mean) / unit
            last = min(first + 4, end)
            seen = columns["context.observation"][last - 1, 1].double()
            one[last - first, :3] = (seen - mean[:3]) / unit[:3]
            segments.append(one)
    with random.seeded(0):
        model = SegmentModel(pendulum().spec, 4, (8,))
    model.mean.copy_(mean)
    model.deviation.copy_(unit)
    adam, x = torch.optim.Adam(model.parameters()), torch.stack(segments).float()
    for step in range(3):
        here = Draw(1).at(step)
        adam.param_groups[0]["lr"] = 1e-3 * (1.0, 0.75, 0.25)[step]
        adam.zero_grad()
        rows = torch.from_numpy(random.integers(here, len(x), len(x)))
        error_by_hand(model, x[rows], torch.Generator().manual_seed(random.seed_for_torch(here))).backward()
        adam.step()
    return torch.cat([one.flatten() for one in model.state_dict().values()])


def fitted_gap() -> float:
    columns = columns_with_ends()
    with random.seeded(0):
        model = SegmentModel(pendulum().spec, 4, (8,))
    SMALL.fitted(model, columns, Draw(1))
    mine = torch.cat([one.flatten() for one in model.state_dict().values()])
    return float((mine - fitted_by_hand(columns)).abs().max())


def record_gap() -> float:
    """Returns how far a segment that ends in its second decision is from its decisions and observations."""
    model = model_of()
    x = torch.randn(1, 5, 7, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    x[0, :, 6] = (torch.tensor([0.4, 0.6, 0.4, 0.6, 0.4]) - model.mean[6]) / model.deviation[6]
    found, raw = model.record(x), x[0] * model.deviation + model.mean
    gaps = (
        found.context["observation"][0] - raw[:, :3], steps.in_half_ranges(found.action[0]) - raw[:, 3:5],
        found.reward[0] - raw[:, 5], found.mask[0].double() - torch.tensor([1.0, 1, 0, 0, 0]),
        found.terminal[0].double() - torch.tensor([0.0, 1, 0, 0, 0]), found.truncated.double(),
    )  # fmt: skip
    unended = model.record(x * torch.tensor([1, 1, 1, 1, 1, 1, 0.0]) - torch.eye(7).double()[6]).mask[0]
    return probes.worst(*(float(gap.abs().max()) for gap in gaps)) + abs(int(unended.sum()) - 4) + int(unended[4])


def made_gap(real: float, num_logs: int = 1) -> float:
    """Returns how far batches are from rows of segments that are made by hand, of the first, the third and the fifth
    step, with new segments every two; and how many rows are made ones though they should be the log's, or not.
    """
    task, base = pendulum(), recipe(model=SMALL, real=real, coefficient=2.0).source
    assert isinstance(base, Generated)
    logs = tuple(replace(LOG, first=10 * place) for place in range(num_logs))
    source = replace(base, every=2, log=replace(base.log, logs=logs, batch=40, updates=2))
    engine = Engine(recipe(), task.spec, 0, Placement())
    state, wrong, model = source.init(ALONE.given(task=task)), 0.0, SegmentModel(task.spec, 4, (8,))
    recorded = joined(state)["reward"][:, 0]
    wanted = recorded[:0]
    for step in range(5):
        scene = ALONE.given(task=task, models=engine, draw=Draw(7, (step,)), progress=Progress(step, 5))
        batches = list(source(scene, state))
        if step % 2 == 0:
            model.load_state_dict(state["weights"])
            shift = towards(model, engine.models["actor"], 2.0 if step else 0.0, 3)
            rows = SMALL.made(model, shift, scene.draw.at(21)).now
            wanted = torch.stack((rows.reward, rows.action.clamp(-2.0, 2.0)[..., 0]), -1)[rows.mask].detach()
        for batch in batches:
            found = torch.stack((batch.reward[:, 0], batch.action[:, 0, 0]), -1)
            is_made = (found.unsqueeze(1) == wanted).all(-1).any(1)
            share = int(real * 40) * num_logs
            is_logged = (found[:, :1] == recorded).any(1)
            wrong += int((~is_made[: 40 * num_logs - share]).sum()) + int((~is_logged[40 * num_logs - share :]).sum())
            wrong += abs(len(batch) - 40 * num_logs) + len(batches) - 2
    return wrong


def is_refused() -> float:
    """Returns how many of five are refused: discrete actions, goals, segments longer than episodes, settings."""
    long = recipe(model=replace(SMALL, length=300))
    found = [probes.is_refused(recipe(CONTROL, model=SMALL), cartpole()), probes.is_refused(long, pendulum())]
    for change in ({"real": 1.0}, {"every": 0}):
        found.append(raises(partial(replace, recipe().source, **change)))
    return float(sum([*found, raises(partial(replace, SMALL, levels=1))]))


def raises(function: Any) -> bool:
    try:
        function()
    except AssayError:
        return True
    return False


# ---------------------------------------------------------------------------------------------------- measured
def likelihood(seed: int, coefficient: float, model: Segments = Segments(hidden=(64, 64), updates=500)) -> float:
    """Returns the mean log-density, under an actor trained by td3-bc for 20 steps, of decisions that are made of the
    pendulum's log with this guidance.
    """
    loop = probes.trained(td3_bc(CONTINUOUS), pendulum(), seed, 20)
    made = SegmentModel(pendulum().spec, model.length, model.hidden)
    source: Any = recipe(model=model).source
    model.fitted(made, joined(source.init(ALONE.given(task=pendulum(), draw=Draw(seed)))), Draw(seed))
    found: Experience = model.made(made, towards(made, loop.actor, coefficient, model.levels), Draw(seed)).now
    with torch.no_grad():
        return float(loop.actor.score(found, frozenset({Need.LOGP})).logp[found.mask].mean())


def guided(coefficient: float) -> Computed:
    """Returns the side with this coefficient."""
    return Computed(partial(likelihood, coefficient=coefficient),
                    small=partial(likelihood, coefficient=coefficient, model=SMALL))


CLAIMS = Claims(
    claims=(
        Exact("guided by the exact gradient, a Gaussian behaviour and a Gaussian policy give the product N(1, 1/2)",
              lambda: product_gap(1.0), at_most=0.1),
        Exact("without guidance samples have the behaviour's mean and variance", lambda: product_gap(0.0),
              at_most=0.06, illustrates=True),
        Exact("the sampler is the stochastic one of second order, shifted before all steps but the last",
              lambda: sampled_gap(60) + sampled_gap(400), at_most=1e-9),
        Exact("the strength of guidance at 200 levels is 1.0047, 0.9654, 0.8, 0.4588 and 0.0147", strength_gap,
              at_most=1e-6),
        Exact("a shift moves the actions of a segment, and nothing else, by one vector along the gradient",
              lambda: probes.worst(float(move_gap(3, 50, 0.7)), float(move_gap(40, 50, 2.0))), at_most=1e-6),
        Exact("where the actions are the actor's nothing moves", at_rest, at_most=1e-3),
        Exact("the gradient of its model is that of the formula", gradient_gap, at_most=1e-6),
        Exact("its model is fitted to the segments that are whole or end with their episode", fitted_gap,
              at_most=1e-5),
        Exact("made segments are decisions up to their end, in the task's units", record_gap, at_most=1e-9),
        Exact("batches are rows of the last segments, guided but for the first, renewed every second step",
              lambda: made_gap(0.0), equals=0.0),
        Exact("half of the rows are recorded ones", lambda: made_gap(0.5, num_logs=2), equals=0.0),
        same_gradient("its gradients are those of td3-bc's formulas", recipe, steps.td3_bc,
                      partial(probes.transitions, num=2048), probes.BOX_SPEC, at_most=1e-6),
        Exact("discrete actions, too short episodes and senseless settings are refused", is_refused, equals=5.0,
              of="refusals"),
        Measured("on made segments it scores higher than td3-bc on the log", "pendulum", recipe(), td3_bc(CONTINUOUS),
                 seeds=5, minutes=25, looks=2, about=About.HEADLINE),
        Measured("guided decisions are likelier under the policy than unguided ones", "", guided(0.3), guided(0.0),
                 seeds=5, minutes=2, about=About.MECHANISM),
    ),
    mutants=(
        Edit("away from the policy", towards, "moved = action.detach() +", "moved = action.detach() -"),
        Edit("a unit vector for each decision", towards, "slope.flatten(1).norm(dim=1).clamp(min=1e-8).view(-1, 1, 1)",
             "slope.norm(dim=-1, keepdim=True).clamp(min=1e-8)"),
        Edit("states are dragged along", towards, "model.record(x.detach(), action)",
             "model.record(x + 0.1 * action.mean(), action)"),
        Edit("guided at the last step too", denoised, "if k < num - 1 else x", "if k < num else x"),
        Edit("guided from the first time", Generated.made, 'if state["made"] >= 0 else 0.0', "if True else 0.0"),
        Edit("ends are lost", SegmentModel.record, "ends & mask, none", "none, none"),
        Edit("segments that the log cuts short", Segments.begins, '| places["terminal"][last]', "| (last >= 0)"),
        Edit("actions outside of their bounds", Generated.made, "found.action.clamp(low, high)", "found.action"),
    ),
)
