"""The one table of columns that stand in `Experience.extra`: name, axes, who writes it, meaning.

Axes: B sequences, T decisions, N draws. `task` and `engine` columns are there wherever the task or a part's `needs` ask
for them; the others are there only if a part of the recipe writes them (`writes`) before another reads them (`reads`),
which is checked when a plan is made. A column of a user's own part needs no entry.
"""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """A column: its axes, the kind of part that writes it, examples of such parts, and what it means."""

    axes: str
    writer: str
    parts: tuple[str, ...]
    meaning: str


TABLE: dict[str, Column] = {
    # Written when a task is played, or by the engine because a part needs them.
    "start": Column("B", "task", (), "ordinal of the start"),
    "sample": Column("B", "task", (), "number of the sample inside its group"),
    "split": Column("B", "task", (), "0 for training, 1 held out"),
    "regime": Column("B", "task", (), "regime of an uncertain task that held in this episode"),
    "answer": Column("BT", "task", (), "decisions of the whole episode, also those that are context here"),
    "elapsed": Column("B", "task", (), "decisions of the episode before this row's own"),
    "path": Column("BTN", "task", (), "inner steps of an actor that denoises or integrates"),
    "logp_model": Column("BT", "task", (), "log-probability under the model where sampling was narrowed"),
    "episode_return": Column("BT", "task", (), "undiscounted return, set where an episode ends"),
    "episode_length": Column("BT", "task", (), "number of decisions, set where an episode ends"),
    "row": Column("B", "engine", (), "place in the batch: the coordinate of random numbers in a loss"),
    "value": Column("BT", "engine", (), "state value by the critic `value`"),
    "logp_ref": Column("BT", "engine", (), "log-probability under the frozen copy `reference`"),
    "cost_value": Column("BT", "engine", (), "state value of costs by the critic `cost_value`"),
    "q": Column("BT", "engine", (), "value of the recorded action by the critic `q`"),
    "q_size": Column("BT", "engine", (), "mean size of action values, the scale of TD3+BC"),
    "teacher_logp": Column("BTV", "engine", (), "log-probabilities of the model that sees a solution"),
    "uniform_logp_old": Column("BT", "engine", (), "mean log-probability over the vocabulary when acting"),
    "logp_shown": Column("BT", "engine", (), "log-probability of demonstrated decisions when acting"),
    # Written by rewards.
    "score": Column("B", "reward", ("Verifier", "FromFunction"), "the task's own number of a row"),
    "policy_fault": Column("B", "reward", ("Verifier",), "the completion has no answer that can be read"),
    "infra_fault": Column("B", "reward", ("Verifier",), "the infrastructure failed: the row left training"),
    "reward/verifier": Column("BT", "reward", ("Verifier",), "the verifier's reward, kept so that it runs once"),
    # Written by rollouts and sources.
    "probe": Column("B", "rollout", ("Chain",), "the row only estimates a value and is not trained"),
    "prefix": Column("B", "rollout", ("FromPrefixes",), "how many decisions were given"),
    "left": Column("B", "rollout", ("Windows",), "decisions of the answer that are not in this window"),
    "hinted": Column("B", "rollout", ("Hinted",), "the policy saw more than the task's prompt when it acted"),
    "chosen": Column("B", "credit or source", ("PairUp", "Pairs"), "+1 for the better row of a pair, -1 for the other"),
    "distance": Column("BT", "source", ("Relabelled",), "steps of the shortest way to the goal"),
    "nearer": Column("BT", "source", ("Relabelled",), "whether the step leads towards the goal"),
    # Written by credit, preparation and constraints.
    "advantage": Column("BT", "credit", ("OutcomeCredit", "Gae", "RewardToGo"), "how much better than expected"),
    "return": Column("BT", "credit", ("Gae", "RewardToGo"), "what a critic learns to predict"),
    "outcome": Column("B", "credit", ("OutcomeCredit",), "total reward of the row's episode"),
    "posterior_weight": Column("BT", "credit", ("PosteriorWeight",), "weight of a sample of the posterior"),
    "dropped": Column("BT", "credit", ("DropHighCovariance",), "decisions that clip-cov leaves out"),
    "high_covariance": Column("BT", "credit", ("MarkHighCovariance",), "decisions whose covariance is largest"),
    "cost_advantage": Column("BT", "constraint", ("Multiplier",), "how much more a decision costs"),
    "cost_return": Column("BT", "constraint", ("Multiplier",), "what a cost critic learns to predict"),
}

ALWAYS = ("task", "engine")
"""Writers whose columns are there without a part of the recipe."""


def is_given(name: str) -> bool:
    """Whether the task or the engine writes the column."""
    return name in TABLE and TABLE[name].writer in ALWAYS


def writers_of(name: str) -> str:
    """Which parts could write a column, in words."""
    entry = TABLE.get(name)
    if entry is None:
        return "no part of the library writes it: add your own before"
    return f"{' or '.join(entry.parts)} ({entry.writer}) would write it"
