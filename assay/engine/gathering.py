"""Gathers the rewarded rows of a step: in one piece, shard by shard of their starts, or by separate samplers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import COLUMNS, Draw, Experience, Need, Origin, State, concatenate
from assay.core.score_range import UNIT, check_unit, is_inside, readers_of
from assay.core.slots import Scene, Source, Task, TextTask, logp_of
from assay.core.slots.scene import NO_STARTS
from assay.core.verifier import COMPONENT, VERIFIED
from assay.decoding.sampling_parameters import LOGP_SAMPLER
from assay.engine.batch_shards import bit_sum
from assay.engine.engine import Engine

REWARDED = "rewarded"
"""Column [B]: the recipe's rewards were applied to the row."""

ApplyRewards = Callable[[Experience], Experience]


class Gatherers(Protocol):
    """Gathers in place of the loop's own process. Its state is saved with the loop's."""

    def __call__(self, scene: Scene, states: State) -> tuple[Experience, bool]:
        """Returns the rows of the scene's step, and whether the recipe's rewards were applied to them."""

    def snapshot(self) -> State:
        """Returns its state as a tree of plain values."""

    def restore(self, state: State) -> None:
        """Resumes where `snapshot` was taken."""


class Played(NamedTuple):
    """Rows, the metrics logged while they were gathered, and the numbers that the rollout put into models."""

    rows: Experience
    metrics: dict[str, list[tuple[float, float]]]
    kept: State


class Reading(Protocol):
    """A part that may read models before the update."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models."""


@contextmanager
def handed(part: Reading | None, scene: Scene) -> Iterator[None]:
    """Lets a part read the scene's models: without gradient. Raises AssayError if it has changed one.

    Degenerate: a part that names no model costs nothing.
    """
    names = () if part is None else part.models
    if not names:
        yield
        return
    before = [fingerprint(scene.models.model(name)) for name in names]
    with torch.no_grad():
        yield
    for name, known in zip(names, before, strict=True):
        if fingerprint(scene.models.model(name)) != known:
            raise AssayError(
                f"{type(part).__name__} changed the model '{name}', which it may only read. Train it in a stage"
            )


def batches_of(source: Source, scene: Scene, batches: Iterable[Experience]) -> Iterator[Experience]:
    """Yields a source's batches; it reads models as they are after the update on the batch before."""
    rows = iter(batches)
    while True:
        with handed(source, scene):
            batch = next(rows, None)
        if batch is None:
            return
        yield batch


def fingerprint(model: nn.Module) -> list[int]:
    """Returns the sum of the bits of each parameter."""
    return [bit_sum(own.detach()) for own in model.parameters()]


@dataclass(frozen=True)
class Gathering:
    """Gathers the experience of one step. `recipe` is the recipe at that step; `states` are those of all parts, which
    the loop saves; `time_phase` measures phases of the step; `gatherers`, if given, sample instead of this process.
    """

    recipe: Recipe
    engine: Engine
    states: State
    time_phase: Callable[[str], AbstractContextManager[None]]
    gatherers: Gatherers | None = None

    def rows(self, scene: Scene) -> Experience:
        """Returns rewarded rows of the curriculum's next starts, on every rank."""
        if self.gatherers is not None:
            with self.time_phase("sample"):
                fresh, is_rewarded = self.gatherers(scene, self.states)
            return fresh if is_rewarded else self.reward(scene, fresh)
        curriculum = self.recipe.curriculum
        with handed(curriculum, scene):
            starts = NO_STARTS if curriculum is None else curriculum(scene, self.states["curriculum"])
        return self._play_on_ranks(scene.given(starts=starts))

    def play(self, scene: Scene) -> Experience:
        """Returns rewarded experience from the starts of a scene."""
        with self.time_phase("sample"):
            here = scene.given(actor=self.engine.models[self.recipe.behaviour])
            fresh, is_rewarded = roll_out(self.recipe, here, self.states["rollout"], partial(self.reward, scene))
        return fresh if is_rewarded else self.reward(scene, fresh)

    def reward(self, scene: Scene, fresh: Experience) -> Experience:
        """Applies the recipe's rewards in order."""
        with self.time_phase("reward"):
            return apply_rewards(self.recipe, scene, self.states["rewards"], fresh)

    def rescore(self, scene: Scene, fresh: Experience) -> Experience:
        """Returns log-probabilities as training computes them if it computes in another precision than sampling.

        Otherwise the ratio is not 1 before the first update: unlikely tokens differ by whole nats in bfloat16, and a
        large ratio of a negative advantage is never clipped. Rows of other origin, and rollouts whose recorded
        log-probabilities are not the policy's own, keep theirs. Logs the mean KL between the two as `precision_gap`;
        the sampler's are kept as `logp_sampler` if a part reads them.
        """
        recipe = self.recipe
        has_own = "recorded" not in getattr(recipe.rollout, "breaks", {}) and "logp_model" not in fresh.extra
        if self.engine.placement.precision is None or Need.LOGP not in recipe.needs or not has_own:
            return fresh
        logp = self.engine.over(recipe.behaviour, fresh, logp_of)
        # Rows of others keep what was recorded: there it is another policy's, not a rounding.
        own = fresh.mask if fresh.source is None else fresh.mask & (fresh.source == int(Origin.POLICY)).unsqueeze(1)
        logp = torch.where(own, logp.to(fresh.logp.dtype), fresh.logp)
        gap = logp - fresh.logp
        scene.log("precision_gap", float((gap.exp() - 1.0 - gap)[own].sum()), float(own.sum()))
        kept = {LOGP_SAMPLER: fresh.logp} if any(LOGP_SAMPLER in part.reads for part in recipe.credit) else {}
        return replace(fresh, logp=logp).add(kept)

    def _play_on_ranks(self, scene: Scene) -> Experience:
        """Returns play(scene), on every rank: if the starts can be cut, each shard plays its own, else rank 0 all.

        A shard's rewards have random numbers of their own. Rows are those of the first shard, of the second, ...; in a
        game they are sorted by (start, sample, player), because a task lists its players one after the other.
        """
        assert self.recipe.rollout is not None
        shards, ranks = self.engine.placement.shards, self.engine.ranks
        is_cut = self.recipe.rollout.by_start and len(scene.starts) > 0 and not needs_one_piece(self.states)
        # Nothing to exchange: no row is copied.
        if shards == 1 or (not is_cut and ranks.num == 1):
            return self.play(scene)
        if not is_cut:
            played = [ranks.told(lambda: self._play_apart(scene))]
            # Only rank 0 has seen the observations: the others take its moments, or their networks would differ.
            _write_kept(self.engine, played[0].kept)
        else:
            starts = np.array_split(scene.starts, shards)
            mine = [place for place in ranks.mine(shards) if len(starts[place])]
            own = [self._play_apart(shard_scene(scene, place).given(starts=starts[place])) for place in mine]
            played = ranks.shared(own)
        for one in played:
            for name, entries in one.metrics.items():
                scene.metrics.setdefault(name, []).extend(entries)
        fresh = join_shards([one.rows for one in played])
        return sort_by_episode(fresh) if is_cut else fresh

    def _play_apart(self, scene: Scene) -> Played:
        """Returns play(scene) with what it logs and keeps, which other ranks do not see otherwise."""
        here = scene.given(metrics={})
        return Played(self.play(here), here.metrics, _read_kept(self.engine))


def needs_one_piece(states: State) -> bool:
    """Returns whether the order of the rows matters because the rollout or a reward has a state."""
    return any((states["rollout"], *states["rewards"]))


def roll_out(recipe: Recipe, scene: Scene, state: State, reward: ApplyRewards) -> tuple[Experience, bool]:
    """Returns what the recipe's rollout gathers from the starts of `scene` with its actor, and whether the rollout
    has applied the rewards.
    """
    assert recipe.rollout is not None
    # A rollout may ask for rewards while it gathers; then all of its rows must have them.
    peeks: list[int] = []

    def mark_rewarded(rows: Experience) -> Experience:
        fresh = reward(rows)
        peeks.append(len(fresh))
        return fresh.add({REWARDED: torch.ones(len(fresh), dtype=torch.bool, device=fresh.mask.device)})

    # Random numbers of a rollout belong to (start, sample, time), whatever the step: the draw is the run's.
    with handed(recipe.rollout, scene):
        fresh = recipe.rollout(scene.given(draw=Draw(scene.draw.seed, (0,)), reward=mark_rewarded), state)
    return (_remove_mark(fresh), True) if peeks else (fresh, False)


def apply_rewards(recipe: Recipe, scene: Scene, states: Sequence[State], fresh: Experience) -> Experience:
    """Applies the recipe's rewards in order; OwnCodeError for scores of texts that its parts cannot read."""
    for place, (part, state) in enumerate(zip(recipe.rewards, states, strict=True)):
        with handed(part, scene):
            fresh = part(fresh, scene.given(draw=scene.draw.at(10, place)), state)
    if "score" in fresh.extra and (VERIFIED in fresh.extra or not isinstance(scene.task, TextTask)):
        check_scores(recipe, scene.task, fresh, scene.split)
    return fresh


def check_scores(recipe: Recipe, task: Task, rewarded: Experience, split: int) -> None:
    """Raises AssayError if a part reads outcomes as right or wrong and a score is not from 0 to 1; of texts with the
    row and both ways to repair it.
    """
    # Rows that go on have no outcome: their scores are not judged.
    ended = (rewarded.terminal | rewarded.truncated).any(1)
    scores = torch.where(ended, rewarded.column("score"), 0.0).tolist()
    outside = [score for score in scores if not is_inside(score, UNIT)]
    if not outside:
        return
    if not isinstance(task, TextTask):
        for reader in readers_of(recipe)[:1]:
            raise AssayError(
                f"{reader} of '{recipe.name}' reads outcomes as right (above 1/2) or wrong, but an episode of task "
                f"'{task.name}' has the return {outside[0]:g}. Use a task whose returns are from 0 to 1, or a method "
                "that compares returns, such as grpo or ppo"
            )
        return
    own = [name.removeprefix(COMPONENT) for name in rewarded.extra if name.startswith(COMPONENT)]
    names = f"reward {' + '.join(own)}" if own else f"the score of task '{task.name}'"
    check_unit(recipe, names, scores, task.texts(rewarded, split))


def join_pieces(parts: Sequence[Experience]) -> Experience:
    """Returns the rows of a batch that was cut by start, in the order that they have if it is not: by player, then
    by start and sample.
    """
    rows = concatenate(parts)
    return rows if rows.player is None or len(parts) == 1 else rows.rows(torch.argsort(rows.player, stable=True))


def join_shards(parts: list[Experience]) -> Experience:
    """Returns the rows of all shards; AssayError if only some of them have a column, which joining would drop."""
    names = [{name for name, value in vars(part).items() if value is not None} & set(COLUMNS) for part in parts]
    names = [own | {f"extra.{name}" for name in part.extra} for own, part in zip(names, parts, strict=True)]
    if odd := set().union(*names) - names[0].intersection(*names):
        raise AssayError(
            f"only some shards of the starts have the column '{min(odd)}': the rollout, a reward or the task writes it "
            "for some rows and not for others. Write it always, or use --shards 1"
        )
    return concatenate(parts)


def shard_scene(scene: Scene, place: int) -> Scene:
    """Returns the scene in which a shard is played: rewards draw random numbers of their own."""
    return scene.given(draw=scene.draw.at(14, place))


def sort_by_episode(fresh: Experience) -> Experience:
    """Returns the rows of a game sorted by (start, sample, player); other rows as they are."""
    if fresh.player is None or fresh.episode is None:
        return fresh
    # Two stable sorts, the minor key first.
    by_player = torch.argsort(fresh.player, stable=True)
    return fresh.rows(by_player[torch.argsort(fresh.episode[by_player], stable=True)])


def _remove_mark(fresh: Experience) -> Experience:
    """Returns the rows without the mark; raises AssayError if a rollout rewarded only some of its rows."""
    if REWARDED not in fresh.extra or not bool(fresh.extra[REWARDED].all()):  # joining drops columns some rows lack
        raise AssayError("the rollout rewarded some of its rows and not others. Pass all rows through scene.reward")
    return fresh.with_columns(extra={name: value for name, value in fresh.extra.items() if name != REWARDED})


def _read_kept(engine: Engine) -> State:
    """Returns the numbers that models keep besides their parameters, such as moments of observations."""
    return {name: {own: module.kept() for own, module in flat.keeping.items()} for name, flat in engine.flats.items()}


def _write_kept(engine: Engine, state: State) -> None:
    """Sets what `_read_kept` returned."""
    for name, flat in engine.flats.items():
        for own, module in flat.keeping.items():
            module.keep(state[name][own])
