"""PettingZoo's parallel games as tasks: one policy plays all agents. Axes: n games, P players, R = P n rows, T columns.

Rows are players: those of the first agent, then those of the second. All agents must have equal spaces, since one
policy plays them; supersuit pads those that differ. Held-out start k is scored from seat k mod P, in a game with
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.record import Draw, Experience
from assay.core.spaces import MASK, Spec
from assay.rollouts.episodes import Recorder, Uniforms
from assay.tasks.adapters.gymnasium_instances import closed, raised, reset_seed, step_answer
from assay.tasks.adapters.gymnasium_masks import Reader, find_reader
from assay.tasks.adapters.gymnasium_spaces import Port, check_allowed, port_of
from assay.tasks.adapters.gymnasium_trial import some_action
from assay.tasks.control.stepping import rounded, start_seeds

PREFIX = "pettingzoo:"
LONGEST = 1_000
"""Decisions after which a game is truncated, if the game itself does not end."""
OTHERS = 15
"""The draw of random opponents."""


class Table:
    """One running game: the agents' last observations, and whether each still plays."""

    def __init__(self, game: Any, port: Port, agents: tuple[str, ...], seed: int) -> None:
        self.game, self.port, self.agents = game, port, agents
        seen, infos = game.reset(seed=reset_seed(seed, 0))
        self.alive = dict.fromkeys(agents, True)
        self.seen = {agent: self.row(agent, seen[agent], infos.get(agent, {})) for agent in agents}

    def step(self, rows: Mapping[str, np.ndarray]) -> dict[str, tuple[float, bool, bool]]:
        """Takes one decision of every agent that plays; returns (reward, terminal, truncated) of each."""
        playing = [agent for agent in self.agents if self.alive[agent]]
        for agent in playing if self.port.masks else ():
            check_allowed(self.port.action, self.seen[agent][MASK], rows[agent])
        answer = self.game.step({agent: self.port.actions(rows[agent][None])[0] for agent in playing})
        found = {}
        for agent in playing:
            seen, reward, terminal, truncated, info = step_answer(tuple(part[agent] for part in answer))
            self.alive[agent] = not (terminal or truncated)
            self.seen[agent] = self.row(agent, seen, info)
            self.port.check_finite(self.seen[agent])
            found[agent] = reward, terminal, truncated
        return found

    def row(self, agent: str, seen: Any, info: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Returns an agent's observation and, if there are masks, what it may do next."""
        found = self.port.row(seen)
        if self.port.masks is not None:
            raw = of_agent(agent, self.port.masks.read(self.game, seen, info))
            found[MASK] = self.port.masks.allowed(raw, ended=not self.alive[agent])
        return found


def of_agent(agent: str, raw: Any) -> Any:
    """Returns an agent's part of a raw mask: `action_masks()` of a game answers for all agents."""
    if isinstance(raw, Mapping) and agent not in raw:
        raise AssayError(f"action_masks() has nothing for agent '{agent}'. Return a mask for every agent")
    return raw[agent] if isinstance(raw, Mapping) else raw


@dataclass(frozen=True)
class ParallelGame:
    """A parallel game of several agents; see `GameTask`."""

    name: str
    spec: Spec
    make: Callable[[], Any]
    agents: tuple[str, ...]
    port: Port = field(repr=False)

    @property
    def num_players(self) -> int:
        """Returns the number of agents."""
        return len(self.agents)

    def play(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int, greedy: bool
    ) -> Experience:
        """Plays one game for each (start, sample); on split 1 only the row of the evaluated seat is returned."""
        record = self.played(actor, starts, samples, draw, split, greedy, np.full(len(starts), -1))
        seats = torch.from_numpy(starts) % self.num_players
        return record.rows(seats * len(starts) + torch.arange(len(starts))) if split else record

    def play_against(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, player: int, split: int
    ) -> Experience:
        """Plays games with uniformly random actions in all seats but `player`."""
        record = self.played(actor, starts, samples, draw, split, False, np.full(len(starts), player))
        return record.rows(player * len(starts) + torch.arange(len(starts)))

    @torch.no_grad()
    def played(
        self,
        actor: Any,
        starts: np.ndarray,
        samples: np.ndarray,
        draw: Draw,
        split: int,
        greedy: bool,
        only: np.ndarray,
    ) -> Experience:
        """Plays all games; where `only` is not negative, that seat is the actor's and the others act at random."""
        num, players = len(starts), self.num_players
        tables = [self.table(seed) for seed in start_seeds(split, starts).tolist()]
        player = np.repeat(np.arange(players), num)
        start, sample = np.tile(starts, players), np.tile(samples, players)
        uniforms, recorder = Uniforms(draw, (start, sample, player), actor.num_draws), Recorder()
        context = self.context(tables)
        for time in range(self.spec.horizon):
            action, logp = actor.act(context, None if greedy else uniforms.at(time))
            others = Draw(OTHERS, (time, split))
            action = self.replaced(action, player, np.tile(only, players), others, start, context.get(MASK))
            row = self.stepped(tables, action, logp, last=time + 1 == self.spec.horizon)
            recorder.add(context, row, None)
            context = self.context(tables)
            if not any(any(table.alive.values()) for table in tables):
                break
        for table in tables:
            closed(table.game)
        first, which, who = (torch.from_numpy(np.asarray(one, np.int64)) for one in (start, sample, player))
        named = replace(
            recorder.finish(context), group=first * players + who, episode=first * 2**20 + which, player=who
        )
        return named.add({"start": first, "sample": which})

    def table(self, seed: int) -> Table:
        """Returns a game that has begun; AssayError if it cannot."""
        try:
            return Table(self.make(), self.port, self.agents, seed)
        except AssayError as error:
            raise AssayError(f"task '{self.name}': {error}") from error
        except (Exception, SystemExit) as error:
            raise AssayError(f"task '{self.name}': {raised('reset()', error)}. Fix the game") from error

    def context(self, tables: list[Table]) -> dict[str, Tensor]:
        """Returns the last observation of every row."""
        return dict(self.port.context([table.seen[agent] for agent in self.agents for table in tables]))

    def replaced(
        self,
        action: Tensor,
        player: np.ndarray,
        only: np.ndarray,
        draw: Draw,
        start: np.ndarray,
        allowed: Tensor | None,
    ) -> Tensor:
        """Returns the actions with random ones, of those that are allowed, in the seats of opponents."""
        for row in np.flatnonzero((only >= 0) & (only != player)):
            generator = np.random.default_rng([*map(abs, draw.at(int(start[row]), int(player[row])).path)])
            possible = None if allowed is None else allowed[row].numpy()
            action[row] = torch.as_tensor(some_action(self.spec.action, generator, possible), dtype=action.dtype)
        return action

    def stepped(self, tables: list[Table], action: Tensor, logp: Tensor, *, last: bool) -> tuple[Tensor, ...]:
        """Steps all games; returns (action, mask, logp, reward, terminal, truncated) of every row."""
        rows, num = action.cpu().numpy(), len(tables)
        results = np.zeros((4, len(rows)), np.float32)
        for place, table in enumerate(tables):
            if not any(table.alive.values()):
                continue
            own = {agent: rows[seat * num + place] for seat, agent in enumerate(self.agents)}
            try:
                answers = table.step(own)
            except AssayError as error:
                raise AssayError(f"task '{self.name}': {error}") from error
            except (Exception, SystemExit) as error:
                raise AssayError(f"task '{self.name}': {raised('step()', error)}. Fix the game") from error
            for seat, agent in enumerate(self.agents):
                if agent in answers:
                    reward, terminal, truncated = answers[agent]
                    results[:, seat * num + place] = 1.0, reward, terminal, truncated or (last and not terminal)
        live, reward, terminal, truncated = torch.from_numpy(results)
        return action, live.bool(), logp * live, reward, terminal.bool(), truncated.bool()

    def judge(self, experience: Experience, split: int) -> Experience:
        """Adds `score` [B], the undiscounted return of each player."""
        return experience.add({"score": (experience.reward * experience.mask).sum(1)})

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns agent, return, length and actions of a row."""
        decided = experience.mask[row]
        seat = 0 if experience.player is None else int(experience.player[row])
        actions = rounded(experience.action[row][decided])
        total = float(experience.reward[row][decided].sum())
        return {"agent": self.agents[seat], "return": total, "length": int(decided.sum()), "actions": actions}


def parallel_game(name: str, make: Callable[[], Any], horizon: int = LONGEST) -> ParallelGame:
    """Returns the task of a parallel game that `make` builds; AssayError if its agents differ in their spaces."""
    game = make()
    agents = tuple(game.possible_agents)
    readers = mask_readers(name, game, agents)
    ports = [
        port_of(game.observation_space(agent), game.action_space(agent), name, masks_from=reader)
        for agent, reader in zip(agents, readers, strict=True)
    ]
    closed(game)
    for agent, port in zip(agents, ports, strict=True):
        if (port.observation, port.action) != (ports[0].observation, ports[0].action):
            what = f"task '{name}': agent '{agent}' has other spaces than '{agents[0]}'"
            raise AssayError(f"{what}. Make them equal (supersuit.pad_observations_v0 and pad_action_space_v0)")
        if (port.masks is None) != (ports[0].masks is None):
            lacks = agent if port.masks is None else agents[0]
            what = f"task '{name}': agent '{lacks}' reports no action mask, though another one does"
            raise AssayError(f"{what}. Report one for every agent, of ones where anything is allowed")
    spec = Spec(ports[0].observation, ports[0].action, horizon, masked=ports[0].masks is not None)
    return ParallelGame(name, spec, make, agents, ports[0])


def mask_readers(name: str, game: Any, agents: tuple[str, ...]) -> list[Reader | None]:
    """Returns where each agent finds its action mask, from a first reset; None where it has none."""
    try:
        seen, infos = game.reset(seed=reset_seed(0, 0))
        return [find_reader(game, seen[agent], infos.get(agent, {})) for agent in agents]
    except (Exception, SystemExit) as error:
        raise AssayError(f"task '{name}': {raised('reset()', error)}. Fix the game") from error


def pettingzoo_task(name: str) -> ParallelGame:
    """Returns the task of pettingzoo:FAMILY.GAME, such as pettingzoo:butterfly.cooperative_pong_v6."""
    require("pettingzoo", "games", f"task '{name}'")
    path = name.removeprefix(PREFIX)
    try:
        module = import_module(f"pettingzoo.{path}")
    except ImportError as error:
        raise AssayError(
            f"task '{name}' cannot be imported ({error}). Example: {PREFIX}butterfly.cooperative_pong_v6"
        ) from error
    if "parallel_env" not in vars(module):
        raise AssayError(f"task '{name}' has no parallel_env. Use a game with the parallel API")
    return parallel_game(name, module.parallel_env)
