"""policy-guided-diffusion: td3-bc on segments that a diffusion model of the log makes, drawn towards its policy.

    x = observations, actions, rewards and ends of `length` decisions of the log, each with mean 0 and deviation 1
    D(x, sigma) = x / (1 + sigma^2) + sigma / sqrt(1 + sigma^2) * net(x / sqrt(1 + sigma^2), log sigma)
    loss = (1 + sigma^2) / sigma^2 * mean (D(x + sigma * noise, sigma) - x)^2,   log sigma ~ N(-1.2, 1.2^2)
    before denoising step k of K:  a <- a + coefficient * (1 - k / K + 0.3 sin(pi (k + 1) / K)) * g / |g|
    g = gradient of sum_t log pi(a_t|s_t) in the segment's actions alone; none before the last step

Jackson et al. 2024. A log is of other policies than the one that learns from it, and a model that is rolled out step by
step adds up its errors. Whole segments have none to add up; moving their actions while they form leaves the other
channels to the model, which makes states and rewards that go with the actions.

Axes: N segments, T = length + 1 columns, C channels, K denoising steps.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from assay.method import CONTINUOUS, AssayError, Draw, Experience, Method, Need, Preset, Recipe, Scene, Source, Spec
from assay.method import State, concatenate, logged, model_name, random, td3_bc
from assay.models import ActionUnits, feature_size, need_box, perceptron, time_features
from assay.parts import Log, Logged, Windows, transitions
from assay.parts.sources.windows import places_of

Shift = Callable[[int, Tensor], Tensor]
"""(number of the step, segments) -> segments."""


class SegmentModel(nn.Module):
    """D(x, sigma) for segments [N, T, C]: observation, action in half-ranges, reward, end; standardised.

    Columns after an end, and what the last column has beside its observation, are 0.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, spec: Spec, length: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.length, self.units = length, ActionUnits(need_box(spec, "a model of segments"))
        self.first, self.reward = feature_size(spec), feature_size(spec) + need_box(spec, "a model of segments").size
        size = self.reward + 2
        self.net = perceptron((length + 1) * size + 4, (length + 1) * size, hidden, activation=nn.SiLU)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("deviation", torch.ones(size))

    def channels(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Returns columns [..., numbers] as channels [..., C], not standardised."""
        seen, ends = columns["context.observation"], columns["terminal"].to(columns["reward"].dtype)
        numbers = (columns["reward"].unsqueeze(-1), ends.unsqueeze(-1))
        return torch.cat((seen, self.units(columns["action"]), *numbers), -1)

    def standardised(self, windows: Mapping[str, Tensor]) -> Tensor:
        """Returns windows of a log as segments."""
        live = windows["mask"].unsqueeze(-1)
        seen = live | torch.cat((live[:, :1], live[:, :-1]), 1)
        there = torch.where(torch.arange(len(self.mean), device=live.device) < self.first, seen, live)
        return (self.channels(windows) - self.mean) / self.deviation * there

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Returns D for noise of deviation sigma, [N] or [1]."""
        size = (1.0 + sigma.square()).view(-1, 1, 1)
        level = time_features(0.5 + sigma.log() / 16.0).to(x.dtype).expand(len(x), -1)
        found = self.net(torch.cat(((x / size.sqrt()).flatten(1), level), 1)).view_as(x)
        return x / size + sigma.view(-1, 1, 1) / size.sqrt() * found

    def record(self, x: Tensor, action: Tensor | None = None) -> Experience:
        """Returns segments as experience, with these standardised actions if given; what follows an end is masked."""
        raw = x * self.deviation + self.mean
        scaled = raw[..., self.first : self.reward]
        if action is not None:
            there = slice(self.first, self.reward)
            scaled = action * self.deviation[there] + self.mean[there]
        ends = raw[..., -1] > 0.5
        mask = (ends.long().cumsum(1) - ends.long()) == 0
        mask[:, -1] = False
        none, reward = torch.zeros_like(mask), raw[..., self.reward]
        context = {"observation": raw[..., : self.first]}
        return Experience(context, self.units.of_task(scaled), mask, 0 * reward, reward, ends & mask, none)


def noise_levels(num: int) -> list[float]:
    """Returns sigma_0, ..., sigma_num: from 80 to 0.002, evenly in the seventh root, then 0 (arXiv:2206.00364)."""
    high, low = 80.0 ** (1 / 7), 0.002 ** (1 / 7)
    return [(high + k / (num - 1) * (low - high)) ** 7 for k in range(num)] + [0.0]


def denoised(denoise: Callable[[Tensor, Tensor], Tensor], x: Tensor, num: int, shift: Shift, seed: int) -> Tensor:
    """Returns samples from normal numbers x by `num` steps of second order with new noise (arXiv:2206.00364, algorithm
    2); all steps but the last begin with a shift.
    """
    levels, draw = noise_levels(num), torch.Generator().manual_seed(seed)
    x = levels[0] * x
    for k, (now, after) in enumerate(zip(levels, levels[1:], strict=False)):
        x = shift(k, x) if k < num - 1 else x
        up = now * (1.0 + (min(80.0 / num, 2.0**0.5 - 1.0) if 0.05 <= now <= 50.0 else 0.0))
        noise = torch.randn(x.shape, generator=draw, dtype=x.dtype).to(x.device)
        x = x + 1.003 * (up**2 - now**2) ** 0.5 * noise
        slope = (x - denoise(x, x.new_tensor([up]))) / up
        there = x + (after - up) * slope
        if after > 0.0:
            there = x + (after - up) * (slope + (there - denoise(there, x.new_tensor([after]))) / after) / 2.0
        x = there
    return x


def strength(k: int, num: int) -> float:
    """Returns by how much the actions of a segment move before step k, for a coefficient of 1."""
    return 1.0 - k / num + 0.3 * math.sin(math.pi * (k + 1) / num)


def towards(model: SegmentModel, actor: Any, coefficient: float, num: int) -> Shift:
    """Returns the move of actions, and of nothing else, along the gradient of their log-density; of one length for
    each segment, 0 where the gradient is.
    """

    def shift(k: int, x: Tensor) -> Tensor:
        with torch.enable_grad():
            action = x[..., model.first : model.reward].detach().requires_grad_()
            rows = model.record(x.detach(), action).now
            rows = rows.with_columns(mask=torch.ones_like(rows.mask))
            (slope,) = torch.autograd.grad(actor.score(rows, frozenset({Need.LOGP})).logp.sum(), action)
        length = slope.flatten(1).norm(dim=1).clamp(min=1e-8).view(-1, 1, 1)
        moved = action.detach() + coefficient * strength(k, num) * slope / length
        return torch.cat((x[..., : model.first], moved, x[..., model.reward :]), -1)

    return shift


def loss_of(model: SegmentModel, x: Tensor, draw: torch.Generator) -> Tensor:
    """Returns the mean weighted error of D at random noise."""
    sigma = (1.2 * torch.randn(len(x), generator=draw) - 1.2).exp().to(x)
    noise = torch.randn(x.shape, generator=draw).to(x)
    error = model(x + sigma.view(-1, 1, 1) * noise, sigma) - x
    return ((1.0 + sigma.square()) / sigma.square() * error.square().mean((1, 2))).mean()


@dataclass(frozen=True)
class Segments:
    """A model of segments of `length` decisions: its layers, batches of 256 that it is trained on, how many short
    episodes it makes at once and in how many denoising steps.
    """

    length: int = 16
    hidden: tuple[int, ...] = (256, 256)
    updates: int = 3_000
    episodes: int = 640
    levels: int = 50
    not_a_part: ClassVar[str] = "settings of the source below"

    def __post_init__(self) -> None:
        if self.length < 1 or self.levels < 2 or self.episodes < 1:
            what = f"Segments has length {self.length}, episodes {self.episodes}, levels {self.levels}"
            raise AssayError(f"{what}. Use at least 1 decision, 1 episode and 2 levels")

    def fitted(self, model: SegmentModel, log: dict[str, Tensor], draw: Draw) -> None:
        """Trains the model on the segments of a log."""
        logged = model.channels({name: column[:, 0].cpu() for name, column in log.items()})
        deviation, mean = torch.std_mean(logged.double(), 0, correction=0)
        model.mean.copy_(mean)
        model.deviation.copy_(deviation.clamp(min=1e-3))
        places, windows = places_of(log), Windows(length=self.length)
        begins, adam = self.begins(places), torch.optim.Adam(model.parameters(), 1e-3)
        rate = torch.optim.lr_scheduler.CosineAnnealingLR(adam, max(1, self.updates))
        for step in range(self.updates):
            here = draw.at(step)
            rows = begins[torch.from_numpy(random.integers(here, len(begins), min(256, len(begins))))]
            adam.zero_grad()
            segments = model.standardised(windows.windows(places, rows))
            loss_of(model, segments, torch.Generator().manual_seed(random.seed_for_torch(here))).backward()
            adam.step()
            rate.step()

    def begins(self, places: Mapping[str, Tensor]) -> Tensor:
        """Returns the decisions at which a segment begins that is whole, or ends as its episode does; raises AssayError
        if there are none.
        """
        last = places["last"]
        found = (last - places["place"] >= self.length - 1) | places["terminal"][last]
        if not bool(found.any()):
            raise AssayError(f"no episode has {self.length} decisions. Set source.model.length to fewer")
        return found.nonzero().squeeze(1)

    def made(self, model: SegmentModel, shift: Shift, draw: Draw) -> Experience:
        """Returns new segments."""
        shape = (self.episodes, self.length + 1, len(model.mean))
        seeds = [random.seed_for_torch(draw.at(k)) for k in (1, 2)]
        start = torch.randn(shape, generator=torch.Generator().manual_seed(seeds[0]))
        return model.record(denoised(model, start, self.levels, shift, seeds[1]))


@dataclass(frozen=True)
class Generated(Source):
    """Batches of made decisions, but for a share `real` of `log`; the first set of them is made as the log is, the next
    ones, every `every` steps, towards the actor of that moment.

    Assumes vector observations, no goals, bounded actions. Degenerate: coefficient 0 resamples the log; an actor whose
    log-density is flat moves nothing. Source: arXiv:2404.06356.
    """

    model: Segments
    log: Logged = Logged()
    coefficient: float = 1.0
    real: float = 0.0
    every: int = 50
    actor: str = model_name("actor")
    breaks: ClassVar[Mapping[str, str]] = {"own": "its decisions are made by a model of the log"}
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"model": Segments(4, (8,), 3, 40, 3), "every": 1, "real": 0.5},)

    def __post_init__(self) -> None:
        if not (0.0 <= self.real < 1.0) or self.every < 1:
            what = f"Generated has real {self.real}, every {self.every}"
            raise AssayError(f"{what}. Use a share from 0 to below 1, and at least 1 step")

    def init(self, scene: Scene) -> State:
        """Returns the datasets; raises AssayError if they have no segment, or more than observations and bounded
        actions.
        """
        state = self.log.init(scene)
        names = [name for name in state["contents"].columns[0] if name.startswith("context.")]
        if names != ["context.observation"]:
            raise AssayError(f"segments of observations are made, and the log has {', '.join(names)}. Use iql")
        need_box(scene.task.spec, "a model of segments")
        self.model.begins(places_of(joined(state)))
        return {**state, "made": -1, "weights": {}, "synthetic": {}}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields the next batches, made rows before recorded ones."""
        if state["made"] < 0 or scene.progress.step - state["made"] >= self.every:
            state["synthetic"] = self.made(scene, state)
            state["made"] = scene.progress.step
        kept, num = int(self.real * self.log.batch), len(self.log.logs)
        ours = replace(self.log, logs=self.log.logs[:1], batch=num * (self.log.batch - kept))
        batches = ours(scene, {"contents": SimpleNamespace(columns=(state["synthetic"],))})
        if not kept:
            yield from batches
            return
        recorded = replace(self.log, batch=kept)(scene.given(draw=scene.draw.at(9)), state)
        yield from (concatenate(pair) for pair in zip(batches, recorded, strict=True))

    def made(self, scene: Scene, state: State) -> dict[str, Tensor]:
        """Returns the decisions of new segments, guided but for the first time."""
        actor, draw, space = scene.models.model(self.actor), scene.draw.at(21), need_box(scene.task.spec, "a segment")
        with random.seeded(random.seed_for_torch(draw)), torch.enable_grad():
            model = SegmentModel(scene.task.spec, self.model.length, self.model.hidden)
            if not state["weights"]:
                self.model.fitted(model, joined(state), draw)
                state["weights"] = model.state_dict()
        model.load_state_dict(state["weights"])
        model.requires_grad_(False).to(next(actor.parameters()).device)
        shift = towards(model, actor, self.coefficient if state["made"] >= 0 else 0.0, self.model.levels)
        found = self.model.made(model, shift, draw).to("cpu")
        low, high = (found.action.new_tensor(side) for side in (space.low, space.high))
        return transitions(replace(found, action=found.action.clamp(low, high)))


def joined(state: State) -> dict[str, Tensor]:
    """Returns the columns of all datasets as one."""
    sets = state["contents"].columns
    return {name: torch.cat([one[name] for one in sets]) for name in sets[0]}


def recipe(
    preset: Preset = CONTINUOUS, log: Log | None = None, coefficient: float = 1.0, model: Segments = Segments(),
    real: float = 0.0,
) -> Recipe:
    """Returns td3-bc on made decisions, guided by this coefficient, and on a share `real` of recorded ones."""
    base = td3_bc(preset, log)
    source = Generated(model, logged(preset, log), coefficient, real)
    return replace(base, name="policy-guided-diffusion", source=source)


METHOD = Method(
    paper="arXiv:2404.06356",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="offline",
    base=td3_bc,
    aliases=("pgd",),
    variants={"unguided": partial(recipe, coefficient=0.0), "joined": partial(recipe, real=0.5)},
    departures=(
        "a perceptron on whole segments in place of a U-Net over time; 50 denoising steps (200), 3,000 batches, Adam "
        "1e-3 without warm-up",
        "actions are modelled in half-ranges and clamped in the end; the authors' code models their inverse tanh",
        "640 segments are renewed every 500 batches of 128 (10,000 of 256)",
        "of the authors' two forms of guidance that at the noisy segment; the one at its denoised estimate is left out",
        "a segment that ends early is 0 after its end; one that the log cuts short is left out",
        "where the policy's gradient is 0 nothing moves (not a number in the authors' code)",
        "the learner is td3-bc; in the paper also iql; data are not D4RL",
    ),
)
