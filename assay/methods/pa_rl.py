"""pa-rl: a policy of any kind is fitted, by its own loss, to its own actions after a critic has improved them.

    a_1, ..., a_N ~ pi(.|s);   the m with the largest mean_i Q_i(s, a), the last replaced by the recorded action
    steps of a <- clip(a + rate * d mean_i Q_i(s, a) / d a), of which the point with the largest value is kept
    one of the m by softmax(mean_i Q_i): pi is fitted to it as a clone is;   acting: the largest

Mark et al. 2024. No gradient goes through the policy, so that what it is does not matter: a Gaussian, a diffusion of
many steps, a sequence of tokens. The critics are iql's, which ask no policy. With constant critics it clones itself.

Axes: B sequences, T decisions, N rows, C candidates, A action dimensions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import CONTINUOUS, AssayError, Box, Choice, Context, Correcting, Draw, Experience, Method, Objective
from assay.method import Phase, Preset, Recipe, Scene, Source, Stage, State, iql, logged, model_name, random
from assay.models import Diffusion, Perceptron, Policy
from assay.parts import Denoising, Log, Logged, LogLikelihood
from assay.parts.wrappers.choosing import drawn, hashed_uniform

CANDIDATES = "candidates_drawn"
"""Column of a source's rows: uniform numbers of their candidates, so that micro-batches draw what the whole draws."""


def spread_over(context: Context, num: int) -> dict[str, Tensor]:
    """Returns the contexts of rows, each `num` times in a row."""
    return {name: value.repeat_interleave(num, 0) for name, value in context.items()}


@dataclass(frozen=True)
class Improve(Choice):
    """Takes the `keep` best of `num` candidates by the mean of the critics, and moves each by `steps` steps of `rate`
    along its slope, in half-ranges; of each path the point with the largest value is kept.

    Degenerate: no steps leave the best candidates as they are. Assumes bounded actions and critics that are
    differentiable. Source: arXiv:2412.06685.
    """

    num: int = 32
    keep: int = 10
    steps: int = 10
    rate: float = 3e-4

    def __post_init__(self) -> None:
        if not (1 <= self.keep <= self.num and self.steps >= 0 and self.rate >= 0.0):
            found = f"keeps {self.keep} of {self.num} and takes {self.steps} steps of {self.rate}"
            raise AssayError(f"Improve {found}. Keep from 1 to all, and take 0 or more steps of 0 or more")

    def candidates(self, actor: Any, context: Context, uniform: Tensor) -> Tensor:
        """Returns actions of the actor for uniform numbers [N, num * draws], [N, num, A]."""
        numbers = uniform.reshape(len(uniform) * self.num, -1)
        action = actor.act(spread_over(context, self.num), numbers)[0].detach()
        return action.view(len(uniform), self.num, -1)

    def moved(self, q: Any, context: Context, action: Tensor, recorded: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the improved actions [N, keep, A] and their values [N, keep], of candidates [N, num, A]; with
        `recorded` [N, A] in the place of the worst that is kept.
        """
        scaled = q.units(action).clamp(-1.0, 1.0)
        place = self.values(q, context, scaled).topk(self.keep, 1).indices
        scaled = scaled.gather(1, place.unsqueeze(-1).expand(-1, -1, scaled.shape[-1]))
        if recorded is not None:
            scaled = torch.cat((scaled[:, :-1], q.units(recorded).unsqueeze(1)), 1)
        best, best_value = scaled, self.values(q, context, scaled)
        for _ in range(self.steps):
            slope = torch.func.grad(lambda point: self.values(q, context, point).sum())(scaled)
            scaled = (scaled + self.rate * slope).clamp(-1.0, 1.0)
            value = self.values(q, context, scaled)
            best = torch.where((value >= best_value).unsqueeze(-1), scaled, best)
            best_value = torch.maximum(value, best_value)
        return q.units.of_task(best.detach()), best_value.detach()

    def values(self, q: Any, context: Context, scaled: Tensor) -> Tensor:
        """Returns mean_i Q_i of actions in half-ranges [N, C, A], [N, C]."""
        rows, num = scaled.shape[:2]
        found = q(spread_over(context, num), q.units.of_task(scaled.flatten(0, 1)))
        return found.mean(0).view(rows, num)


@dataclass(frozen=True)
class ImprovedActions(Source):
    """Batches of `log` whose action is an improved one of the actor, drawn by the softmax of values of those kept.

    The recorded action takes part in the place of the worst that is kept. Degenerate: with one candidate kept it is
    the recorded action, improved. Assumes continuous actions. Source: arXiv:2412.06685.
    """

    log: Logged = Logged()
    improve: Improve = Improve()
    actor: str = model_name("actor")
    q: str = model_name("q")
    breaks: ClassVar[Mapping[str, str]] = {"own": "its actions are the actor's, improved by the critics"}
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"log": Logged((Log(2),), 8, 2), "improve": Improve(4, 2, 2)},)

    def init(self, scene: Scene) -> State:
        """Returns the datasets; raises AssayError if actions are not bounded numbers."""
        if not isinstance(scene.task.spec.action, Box):
            raise AssayError(f"task '{scene.task.name}' has choices, which have no slope. Use iql or cql")
        return self.log.init(scene)

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """Yields the next batches; models are asked when a batch is."""
        num = self.improve.num * scene.models.model(self.actor).num_draws

        def asked(actor: Any, rows: Experience) -> Tensor:
            context = {name: value.flatten(0, 1) for name, value in rows.context.items()}
            return self.improve.candidates(actor, context, rows.column(CANDIDATES).flatten(0, 1))

        def improved(q: Any, rows: Experience) -> Tensor:
            context = {name: value.flatten(0, 1) for name, value in rows.context.items()}
            action, value = self.improve.moved(q, context, rows.column(CANDIDATES), rows.action.flatten(0, 1))
            place = drawn(value.softmax(1), rows.column("chosen_by")[:, 0])
            return action[torch.arange(len(place)), place]

        for number, batch in enumerate(self.log(scene, state)):
            now, draw = batch.now, scene.draw.at(11, number)
            numbers = uniform_of(draw, (len(now), 1, num), now.reward)
            found = scene.models.over(self.actor, now.add({CANDIDATES: numbers}), asked)
            chosen_by = uniform_of(draw.at(1), (len(now), 1), now.reward)
            action = scene.models.over(self.q, now.add({CANDIDATES: found, "chosen_by": chosen_by}), improved)
            yield replace(batch, action=torch.cat((action.unsqueeze(1), batch.action[:, 1:]), 1))


def uniform_of(draw: Draw, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Returns uniform numbers of this draw, of the kind and on the device of a column."""
    return random.uniform_tensor(draw, shape).to(like)


class Improving:
    """Draws candidates, improves them and takes the best. The first has the numbers of the actor's own decision, the
    others numbers that are a hash of them; without numbers all are a hash of the context.
    """

    def __init__(self, part: "ImprovedDecision", actor: Any, q: Any) -> None:
        self.part, self.actor, self.q = part, actor, q
        self.num_draws = actor.num_draws

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the best improved action of each row; its log-probability is not known, and set to 0."""
        num = self.part.improve.num * self.num_draws
        more = hashed_uniform(context if uniform is None else {"uniform": uniform}, num)
        numbers = more if uniform is None else torch.cat((uniform, more[:, self.num_draws :]), 1)
        with torch.no_grad():
            found = self.part.improve.candidates(self.actor, context, numbers)
            action, value = self.part.improve.moved(self.q, context, found, None)
            best = action[torch.arange(len(value)), value.argmax(1)]
            first = found[:, 0]
            return first + self.part.strength * (best - first), value.new_zeros(len(value))


@dataclass(frozen=True)
class ImprovedDecision(Correcting):
    """The improved action with the largest value, `strength` of the way from the first candidate.

    Degenerate: with one candidate and no steps it is the actor's action, inside the bounds. Assumes an actor that can
    be sampled. Source: arXiv:2412.06685.
    """

    strength: float = 1.0
    improve: Improve = Improve()
    actor: str = model_name("actor")
    q: str = model_name("q")

    @property
    def reads(self) -> tuple[str, ...]:
        return self.actor, self.q

    def around(self, models: Mapping[str, Any]) -> Any:
        q = models[self.q]
        if not q.units.is_vector:
            raise AssayError("ImprovedDecision needs bounded actions, and these are choices. Use BestOf")
        return Improving(self, models[self.actor], q) if self.strength else models[self.actor]


def recipe(
    preset: Preset = CONTINUOUS, log: Log | None = None, improve: Improve = Improve(), diffusion: bool = False
) -> Recipe:
    """Returns iql's critics and a clone that is fitted to its improved actions; with `diffusion` of that kind."""
    base = iql(preset, log)
    value, actor, q = base.stages
    native: Objective = Denoising() if diffusion else LogLikelihood()
    fitted = replace(actor, objective=(native,), source=ImprovedActions(logged(preset, log), improve))
    model = Policy(Perceptron((128, 128)), Diffusion()) if diffusion else base.actor
    clone = Stage("clone", trains=("actor",), objective=(native,), optimizer=preset.offline.optimizer)
    first = Recipe(name="pa-rl:clone", actor=model, source=logged(preset, log), stages=(clone,))
    before = (Phase("clone", first, preset.offline.steps // 2),)
    return replace(base, name="pa-rl", actor=model, stages=(value, fitted, q), before=before,
                   wrapper=ImprovedDecision(improve=improve))


def diffusion(preset: Preset = CONTINUOUS, log: Log | None = None, improve: Improve = Improve()) -> Recipe:
    """Returns the same around a diffusion policy."""
    return recipe(preset, log, improve, diffusion=True)


METHOD = Method(
    paper="arXiv:2412.06685",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="offline",
    base=iql,
    variants={"diffusion": diffusion},
    departures=(
        "iql's critics, which the authors' code has as a choice; most of the paper has Cal-QL's, with targets of the "
        "largest improved value in the next state",
        "two critics without layer norm (ten, distributional), a clone for half as many updates first",
        "offline only: the online phase of the paper, on improved actions and half offline rows, is not shipped",
        "the policy is fitted in every update of the critics, not in phases of its own",
        "Gaussian and diffusion policies; no tokens, no images, no pretrained generalist",
        "steps of 3e-4 as in the authors' code, in half-ranges and in units of the return range: small beside the "
        "choice among candidates",
        "data are generated by scripted experts with noise, not D4RL",
    ),
)
