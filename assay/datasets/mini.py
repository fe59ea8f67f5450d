"""Mini datasets: fixed tasks with fixed datasets, made here by stated agents, and a score between two references.

    mini-pendulum-KIND, mini-cartpole-KIND    KIND: random, medium, medium-replay, expert, medium-expert
    score = 100 (return - low) / (high - low),   low = uniform actions, high = the task's scripted expert

The rules are D4RL's (arXiv:2004.07219): the same data for all methods and seeds, one pair of references for all kinds
of a task, undiscounted returns of whole episodes, cut episodes bootstrap. Agents: sac for 600 steps on the
pendulum, ppo for 40 on cartpole, seed 0; 50 episodes of a kind, twice as many rows of medium-expert, and of
medium-replay what the agent gathered. A dataset is made when it is first used, in a minute or two, and kept with its
hash in the folder of data ($ASSAY_DATA, else runs/data). Scores are these data's own and not D4RL's.

Axes: N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from assay import recipes
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience
from assay.datasets.agents import Agent
from assay.datasets.episodes import to_experience
from assay.datasets.made import Expert, Kept, Made, Medium, MediumExpert, MediumReplay, Random
from assay.recipes.presets import Preset
from assay.tasks.control.benchmark import Benchmark, benchmark
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum
from assay.tasks.control.stepping import SteppedTask

EPISODES = 50
"""Episodes of each kind."""


@dataclass(frozen=True)
class Mini:
    """A task, the agent of its data and the agent's steps, and the returns of score 0 and 100."""

    task: Callable[[], SteppedTask]
    agent: Callable[[Preset], Recipe]
    steps: int
    reference: tuple[float, float]

    def data(self, kind: str) -> Made:
        """Returns the description of a kind of dataset."""
        agent = Agent(self.agent, self.steps)
        known: dict[str, Made] = {
            "random": Random(EPISODES), "medium": Medium(agent, EPISODES), "medium-replay": MediumReplay(agent),
            "expert": Expert(agent, EPISODES), "medium-expert": MediumExpert(agent, EPISODES),
        }  # fmt: skip
        return known[kind]


MINIS: Mapping[str, Mini] = {
    "pendulum": Mini(pendulum, recipes.sac, 600, (-1230.0, -107.9)),
    "cartpole": Mini(cartpole, recipes.ppo, 40, (22.0, 500.0)),
}
"""References are means over held-out episodes: 500 of uniform actions, the 20 of an evaluation of the script."""
KINDS = ("random", "medium", "medium-replay", "expert", "medium-expert")


def kept(name: str, kind: str, draw: Draw) -> Experience:
    """Returns the episodes of a dataset, the same ones for every draw; it is made if the folder does not hold it."""
    mini = MINIS[name]
    return to_experience(Kept(mini.data(kind)).dataset(mini.task()))


def mini(name: str, kind: str) -> Benchmark:
    """Returns a task with its dataset."""
    one = MINIS[name]
    return benchmark(one.task(), f"mini-{name}-{kind}", one.reference, partial(kept, name, kind))


LEVELS = {f"mini-{name}-{kind}": partial(mini, name, kind) for name in MINIS for kind in KINDS}
