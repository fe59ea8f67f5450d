"""Training outside of a run: of a recipe on a task, of a table on enumerated episodes. Axes: P, N, S, A."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims.probes.episodes import AllEpisodes
from assay.claims.probes.estimators import Bias, compare, table_of
from assay.claims.probes.gradients import NOWHERE, Given
from assay.claims.probes.posterior import divergence, posterior
from assay.claims.probes.tensors import credited
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, Progress
from assay.core.slots import Task
from assay.engine.engine import Engine
from assay.engine.flat import weights_of
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.ops import distributions, random


def trained(recipe: Recipe, task: Task, seed: int, steps: int, actor: Any = None) -> Loop:
    """Returns the loop of the recipe after `steps` steps, from the weights of `actor` if one is given."""
    loop = Loop(recipe, task, seed=seed, num_steps=steps)
    if actor is not None:
        loop.engine.load({f"actor.{name}": weight for name, weight in weights_of(actor).items()}, recipe)
    for _ in range(steps):
        loop.step()
    return loop


def trained_table(
    recipe: Recipe,
    episodes: AllEpisodes,
    logits_SA: Tensor,
    *,
    steps: int,
    members: int,
    groups: int = 1,
    seed: int = 0,
    behaviour_SA: Tensor | None = None,
    reference_SA: Tensor | None = None,
) -> Tensor:
    """Returns the table [S, A] after `steps` updates, each on `groups` groups of `members` new episodes of every
    prompt.

    Episodes are sampled from the policy itself, or from a fixed `behaviour_SA`. Credit, stages, optimizer and copies
    are the recipe's; its rollout, rewards, selection and source are not used. `reference_SA` is the copy `reference`,
    by default the starting table.
    """
    if recipe.critics:
        raise AssayError(f"recipe '{recipe.name}' has critics ({', '.join(recipe.critics)}); only an actor is a table")
    recipe = recipe.at_limit(episodes.mask.shape[-1])
    engine = Engine(replace(recipe, actor=Given(table_of(logits_SA.double()))), NOWHERE, 0, Placement())
    if reference_SA is not None:
        engine.models["reference"].load_state_dict(table_of(reference_SA.double()).state_dict())
    table = engine.models["actor"].get_parameter("body.table")
    episodes = repeated(episodes, groups)
    for step in range(steps):
        now = recipe.at(Progress(step, steps))
        acting = table.detach() if behaviour_SA is None else behaviour_SA.detach().double()
        record = episodes.record(draw_episodes(episodes, acting, members, Draw(seed, (step,))), acting)
        batch = credited(now, engine.annotate(record, now.needs))
        for stage in now.stages:
            if engine.updates % stage.every == 0:
                engine.update(stage, batch)
        engine.follow(now.copies)
    return table.detach().clone()


def repeated(episodes: AllEpisodes, num: int) -> AllEpisodes:
    """Repeats every prompt `num` times."""
    state, action, mask, reward = (
        column.repeat(num, 1, 1) for column in (episodes.state, episodes.action, episodes.mask, episodes.reward)
    )
    return replace(episodes, state=state, action=action, mask=mask, reward=reward)


def draw_episodes(episodes: AllEpisodes, logits_SA: Tensor, members: int, draw: Draw) -> Tensor:
    """Draws `members` episodes of each prompt from the table; returns their indices, [P, N]."""
    logp_BY = episodes.logp(logits_SA).repeat_interleave(members, 0)
    uniform_B = torch.from_numpy(random.uniform(draw, np.arange(len(logp_BY))))
    return distributions.categorical_sample(logp_BY, uniform_B).view(episodes.num_prompts, members)


def at_posterior(recipe: Recipe, episodes: AllEpisodes, reference_SA: Tensor, beta: float, members: int) -> Bias:
    """Returns the recipe's expected gradient and its variance at the posterior of a reference: 0 at its fixed point."""
    table = posterior(episodes, reference_SA, beta).table
    return compare(recipe, episodes, table, members, reference_SA=reference_SA)


def distance_from_posterior(
    recipe: Recipe,
    episodes: AllEpisodes,
    beta: float,
    behaviour_SA: Tensor | None = None,
    *,
    steps: int,
    members: int,
    seed: int = 0,
) -> float:
    """Returns KL(pi || pi*) after training from the uniform table, which is the reference; see `trained_table`."""
    start = torch.zeros(episodes.num_states, episodes.num_actions, dtype=torch.float64)
    table = trained_table(recipe, episodes, start, steps=steps, members=members, seed=seed, behaviour_SA=behaviour_SA)
    return float(divergence(episodes.logp(table), posterior(episodes, start, beta).logp))
