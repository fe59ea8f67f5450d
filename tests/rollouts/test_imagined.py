"""Episodes in a learned model: a perfect one plays the task's own, ends stop, costs flow, resuming is bitwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.recipe import Recipe, Stage
from assay.core.record import Draw, Experience
from assay.core.slots import Imagined, Imagining, Scene
from assay.core.spaces import Context
from assay.engine.loop import Loop
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.dynamics import LEAST, MOST, Dynamics
from assay.models.model import Critic, Policy
from assay.parts.critics.dynamics import DynamicsLikelihood
from assay.parts.rollouts.episodes import Episodes, Fragments
from assay.parts.rollouts.imagined import Imagine, first_states
from assay.parts.sources.logged import Log, Logged
from assay.recipes.actor_critic import ppo
from assay.recipes.presets import CONTINUOUS
from assay.rollouts.imagined import ImaginedSimulation, LearnedTask
from assay.tasks.control.pendulum import Pendulum, pendulum, swing_up
from assay.tasks.control.pointmaze import LEVELS as MAZES
from assay.tasks.control.steered import steered_hazards
from assay.tasks.control.stepping import Scripted

SHORT = Log(3, noise=0.5)


class Perfect:
    """The pendulum itself, of its observations."""

    num_step_draws = 0

    def imagined(self, context: Context, action: Tensor, uniform: Tensor | None) -> Imagined:
        """Returns the task's own step."""
        cosine, sine, spin = context["observation"].double().numpy().T
        state, reward, terminal = Pendulum().step(np.stack((np.arctan2(sine, cosine), spin)), action.numpy(), None)
        seen = Pendulum().observe(state)["observation"]
        return Imagined(seen, torch.from_numpy(reward), None, torch.from_numpy(terminal))


class Counting:
    """The observation is the step of the episode; it costs as much, and ends after `ends`."""

    num_step_draws = 1

    def __init__(self, ends: int) -> None:
        self.ends = ends

    def imagined(self, context: Context, action: Tensor, uniform: Tensor | None) -> Imagined:
        """Returns the next number."""
        after = context["observation"] + 1.0
        return Imagined(after, after[:, 0], after[:, :1].clone(), after[:, 0] >= self.ends)


def counted(ends: int, horizon: int) -> LearnedTask:
    """Returns the task of that model, from 0."""
    spec = replace(steered_hazards().spec, horizon=horizon)
    return LearnedTask(steered_hazards(), lambda: Counting(ends), torch.zeros(1, 7), spec)


def test_a_perfect_model_is_the_task_step_for_step() -> None:
    task = pendulum()
    starts = np.arange(8)
    real = task.play(Scripted(swing_up), starts, np.zeros_like(starts), Draw(0), split=0, greedy=True)
    for row in range(8):
        begins = real.context["observation"][row, :1]
        learned = LearnedTask(task, lambda: Perfect(), begins, task.spec)
        once = np.zeros(1, np.int64)
        mine = learned.play(Scripted(swing_up), once, once, Draw(0), split=0, greedy=True)
        same = int((mine.reward[0] - real.reward[row]).abs().lt(1e-3).long().cumprod(0).sum())
        assert same >= 40  # float32 observations of an unstable system: later both are episodes of their own
        assert torch.allclose(mine.context["observation"][0, :30], real.context["observation"][row, :30], atol=1e-3)
        assert torch.equal(mine.truncated[0], real.truncated[row])
        assert torch.equal(mine.mask[0], real.mask[row])


@pytest.mark.parametrize(("ends", "horizon", "length"), [(3, 10, 3), (20, 5, 5), (5, 5, 5)])
def test_an_episode_ends_where_the_model_or_the_limit_says_so(ends: int, horizon: int, length: int) -> None:
    task, rows = counted(ends, horizon), np.arange(4)
    actor = Scripted(lambda context: torch.zeros(len(context["observation"]), 2))
    played = task.play(actor, rows, np.zeros_like(rows), Draw(0), split=0, greedy=True)
    assert played.mask.sum(1).tolist() == [length] * 4
    assert bool(played.terminal[:, length - 1].all()) == (ends <= horizon)
    assert bool(played.truncated[:, length - 1].all()) == (horizon <= ends)
    assert played.cost is not None
    assert (played.cost[..., 0] * played.mask).sum(1).tolist() == [sum(range(1, length + 1))] * 4


def test_the_step_after_an_end_begins_the_next_episode_and_costs_nothing() -> None:
    simulation = counted(2, 10).simulate(3)
    for expected in (1.0, 2.0, 0.0, 1.0, 2.0, 0.0):
        context, reward, terminal, _, cost = simulation.step(torch.zeros(3, 2))
        assert cost is not None
        assert context["observation"][:, 0].tolist() == reward.tolist() == cost[:, 0].tolist() == [expected] * 3
        assert terminal.tolist() == [expected == 2.0] * 3


def gaussian(num_costs: int = 1) -> Any:
    """Returns a model with weights that are not at their start."""
    spec = replace(steered_hazards().spec, num_costs=num_costs)
    torch.manual_seed(0)
    model = Critic(Perceptron((16,)), Dynamics(3)).build(spec)
    for parameter in model.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model


def test_a_simulation_resumes_bitwise_and_an_instance_is_a_function_of_its_seed() -> None:
    model, starts = gaussian(), torch.randn(5, 7)
    spec = replace(steered_hazards().spec, horizon=4)
    simulation = ImaginedSimulation(lambda: model, starts, spec, 6)
    simulation.reset(np.arange(6))
    actions = torch.rand(12, 6, 2) * 2 - 1
    for action in actions[:5]:
        simulation.step(action)
    kept = simulation.snapshot()
    first = [simulation.step(action) for action in actions[5:]]
    other = ImaginedSimulation(lambda: model, starts, spec, 6)
    other.restore(kept)
    second = [other.step(action) for action in actions[5:]]
    alone = ImaginedSimulation(lambda: model, starts, spec, 1)
    alone.reset(np.array([4]))
    third = [alone.step(action[4:5]) for action in actions][5:]
    for one, two, own in zip(first, second, third, strict=True):
        assert torch.equal(one[0]["observation"], two[0]["observation"])
        assert torch.equal(one[1], two[1])
        assert torch.allclose(one[0]["observation"][4:5], own[0]["observation"], atol=1e-5)
    ends = torch.stack([one[2] | one[3] for one in first])
    assert bool(ends.any())  # so that the starts of later episodes were compared, too


def in_model(gather: Any, **settings: Any) -> Recipe:
    """Returns ppo in a model that no stage trains."""
    base = ppo(CONTINUOUS)
    critics = {**base.critics, "dynamics": Critic(Perceptron((16,)), Dynamics(2))}
    return replace(base, critics=critics, rollout=Imagine(gather, Logged((SHORT,)), **settings))


@pytest.mark.parametrize("gather", [Fragments(4, 8), Episodes(3, 2)])
def test_a_run_in_a_model_resumes_bitwise(gather: Any) -> None:
    def loop() -> Loop:
        return Loop(in_model(gather, horizon=5), steered_hazards(), seed=0, num_steps=3)

    whole, begun, rest = loop(), loop(), loop()
    for _ in range(3):
        whole.step()
    begun.step()
    rest.restore(begun.snapshot())
    for _ in range(2):
        rest.step()
    for name, flat in whole.engine.flats.items():
        assert torch.equal(flat.values, rest.engine.flats[name].values)


def test_a_run_in_a_model_plays_the_model_and_never_the_task() -> None:
    task, made = steered_hazards(), in_model(Episodes(8, 1), horizon=6)
    refusing = replace(task, make=lambda num: pytest.fail("it asked for the task's simulation"))
    columns = SHORT.columns(task)
    made = replace(made, rollout=Imagine(Episodes(8, 1), Logged((Given(columns),)), horizon=6))
    fresh = Loop(made, refusing, seed=0, num_steps=1).step().fresh
    assert fresh is not None
    assert fresh.mask.shape[1] <= 7
    assert fresh.cost is not None
    known = {tuple(row.tolist()) for row in first_states(columns)}
    assert {tuple(row.tolist()) for row in fresh.context["observation"][:, 0]} <= known
    assert len(known) == 3


@dataclass(frozen=True, eq=False)
class Given:
    """Data at hand."""

    kept: dict[str, Tensor]
    origin: int = 1
    reward_scale: float = 1.0

    def columns(self, task: Any) -> dict[str, Tensor]:
        """Returns the columns."""
        return dict(self.kept)


def test_anywhere_starts_in_every_recorded_state() -> None:
    task = steered_hazards()
    rows = len(SHORT.columns(task)["mask"])
    for anywhere, num in ((False, 3), (True, rows)):
        state = Imagine(Episodes(), Logged((SHORT,)), anywhere=anywhere).init(Scene(task))
        assert len(state["begun"].starts) == num


def test_tasks_that_a_model_cannot_predict_are_refused_in_a_sentence() -> None:
    with pytest.raises(AssayError, match="goal"):
        Critic(Perceptron(), Dynamics()).build(MAZES["pointmaze-umaze"]().spec)
    with pytest.raises(AssayError, match="shows observation, goal, achieved"):
        Imagine(Episodes(), Logged((SHORT,))).init(Scene(MAZES["pointmaze-umaze"]()))
    with pytest.raises(AssayError, match="0, the task's own, or more"):
        Imagine(horizon=-1)


# ---------------------------------------------------------------------------------------------------- the ensemble
def test_a_step_is_drawn_from_one_member_and_its_mean_is_that_of_all() -> None:
    model, num = gaussian(), 50
    assert isinstance(cast(object, model), Imagining)
    context, action = {"observation": torch.randn(num, 7)}, torch.rand(num, 2) * 2 - 1
    uniform = torch.rand(num, model.num_step_draws)
    outputs = model.net(context, action, None)
    mean, spread, end = outputs.split((9, 7, 1), -1)
    log_std = LEAST + (MOST - LEAST) * (spread.tanh() + 1) / 2
    which, row = (uniform[:, 0] * 3).long(), torch.arange(num)
    noise = torch.erfinv(2 * uniform[:, 1:] - 1) * 2**0.5
    said = model.imagined(context, action, uniform)
    wanted = context["observation"] + mean[which, row, :7] + log_std[which, row, :7].exp() * noise
    assert torch.allclose(said.observation, wanted, atol=1e-5)
    assert torch.allclose(said.reward, mean[which, row, 7])
    assert said.cost is not None
    assert torch.allclose(said.cost, mean[which, row, 8:].clamp(min=0))
    assert torch.equal(said.ended, end[which, row, 0] > 0)
    calm = model.imagined(context, action, None)
    assert torch.allclose(calm.observation, context["observation"] + mean.mean(0)[:, :7], atol=1e-6)
    assert torch.equal(model.imagined(context, 5.0 * torch.ones(num, 2), None).reward,
                       model.imagined(context, torch.ones(num, 2), None).reward)


def costly() -> Experience:
    """Returns transitions with costs."""
    data = probes.transitions(num=32)
    return replace(data, cost=torch.rand(32, 2, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64))


def likelihood_by_hand(seen: probes.Seen) -> Tensor:
    data, net = seen.experience, seen.models["dynamics"].net
    here, after = data.context["observation"].unbind(1)
    action = (data.action[:, 0] - torch.tensor([0.0, -0.25])) / torch.tensor([2.0, 0.75])
    assert data.cost is not None
    wanted = torch.cat((after - here, data.reward[:, :1], data.cost[:, 0]), 1)
    outputs = net({"observation": here}, action, None)
    plain = seen.models["dynamics"].spread.unsqueeze(1).expand(-1, 32, -1)
    log_std = LEAST + (MOST - LEAST) * (torch.cat((outputs[..., 5:8], plain), -1).tanh() + 1) / 2
    missed = ((outputs[..., :5] - wanted) ** 2 / (2 * (2 * log_std).exp()) + log_std).sum(-1)
    chance, ended = outputs[..., 8].sigmoid(), data.terminal[:, 0]
    missed = missed - torch.where(ended, chance, 1 - chance).log()
    return missed[:, data.mask[:, 0]].sum() / data.mask[:, 0].sum()


def test_its_loss_is_the_likelihood_of_what_followed() -> None:
    spec = replace(probes.BOX_SPEC, num_costs=1)
    model = Critic(Perceptron((16,)), Dynamics(3))
    stage = Stage("dynamics", ("dynamics",), critic=(DynamicsLikelihood(),))
    made = Recipe("model", Policy(), (stage,), ppo(CONTINUOUS).source, critics={"dynamics": model})
    assert probes.formula_gap(made, costly(), likelihood_by_hand, spec) < 1e-8
    with pytest.raises(AssayError, match="the data have none"):
        probes.formula_gap(made, replace(costly(), cost=None), lambda seen: torch.zeros(()), spec)
