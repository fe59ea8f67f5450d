"""The table of the columns in `Experience.extra`: name, axes, writer, meaning.

Axes: B sequences, T decisions, N draws, A action dimensions. A `task` or `engine` column exists if the task or a part's
`needs` asks for it. Any other column exists only if a part of the recipe writes it (`writes`) before another reads it
(`reads`), which is checked when the plan is made. A column of a user's own part needs no entry.
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
    "logp_model": Column("BT", "task", (), "log-probability under the model, if sampling is truncated (top-k, top-p)"),
    "episode_return": Column("BT", "task", (), "undiscounted return, set at the last decision"),
    "episode_length": Column("BT", "task", (), "number of decisions, set at the last decision"),
    "episode_cost": Column("BTK", "task", (), "total of each cost, set at the last decision; of a task with costs"),
    "row": Column("B", "engine", (), "index in the batch: the coordinate of random numbers in a loss"),
    "value": Column("BT", "engine", (), "state value, from the critic `value`"),
    "logp_ref": Column("BT", "engine", (), "log-probability under the frozen model `reference`"),
    "cost_value": Column("BT", "engine", (), "state value of costs, from the critic `cost_value`"),
    "q": Column("BT", "engine", (), "value of the recorded action, from the critic `q`"),
    "q_size": Column("BT", "engine", (), "mean absolute action value, the scale of TD3+BC"),
    "uniform_logp_old": Column("BT", "engine", (), "mean log-probability over the vocabulary under the acting policy"),
    "logp_shown": Column("BT", "engine", (), "log-probability of demonstrated decisions under the acting policy"),
    "sketch": Column("BTN", "engine", (), "projected hidden state of the frozen start after each decision"),
    # Written by rewards.
    "score": Column("B", "reward", ("Verifier", "FromFunction"), "the task's own score of the row"),
    "policy_fault": Column("B", "reward", ("Verifier",), "the completion has no parsable answer"),
    "infra_fault": Column("B", "reward", ("Verifier",), "the infrastructure failed: the row is excluded from training"),
    "reward/verifier": Column("BT", "reward", ("Verifier",), "the verifier's reward, kept so that it runs once"),
    # Written by rollouts and sources.
    "probe": Column("B", "rollout", ("Chain",), "the row only estimates a value and is not trained"),
    "uniform": Column("B", "rollout", ("WithDemonstrations",), "probability of an action under the uniform policy"),
    "prefix": Column("B", "rollout", ("FromPrefixes",), "number of given decisions"),
    "left": Column("B", "rollout", ("Windows",), "number of decisions of the answer outside this window"),
    "greedy_outcome": Column("B", "rollout", ("WithGreedy",), "outcome of the greedy answer to the same start"),
    "hinted": Column("B", "rollout", ("Hinted", "Lessons"), "the policy saw more than the task's prompt when it acted"),
    "forced": Column("BT", "rollout", ("ForcedFirst",), "the decision was given; `logp` is the policy's own"),
    "mode": Column("B", "rollout", ("ForcedFirst",), "number of the opening that the row was made to begin with"),
    "intervened": Column("BT", "rollout", ("Overseen",), "an overseer took the decision in the policy's place"),
    "proposed": Column("BTA", "rollout", ("Overseen",), "the policy's own action, executed or not"),
    "chosen": Column("B", "credit or source", ("PairUp", "Pairs"), "+1 for the better row of a pair, -1 for the other"),
    "distance": Column("BT", "source", ("Relabelled",), "steps of the shortest way to the goal"),
    "nearer": Column("BT", "source", ("Relabelled",), "whether the step leads towards the goal"),
    "recorded_return": Column("BT", "source", ("LoggedWithReturns",), "return of the recorded episode from here on"),
    # Written by credit, preparation and constraints.
    "advantage": Column("BT", "credit", ("OutcomeCredit", "Gae", "RewardToGo"), "advantage of each decision"),
    "return": Column("BT", "credit", ("Gae", "RewardToGo"), "regression target of the critic"),
    "candidates": Column("BTN", "prepare", ("SelfTeacher", "AnchorEntropy"), "likely actions and a log q of each"),
    "outcome": Column("B", "credit", ("OutcomeCredit",), "total reward of the row's episode"),
    "balance": Column("B", "prepare", ("Balanced",), "weight of an answer by its class, right or wrong"),
    "posterior_weight": Column("BT", "credit", ("PosteriorWeight",), "weight of a sample of the posterior"),
    "dropped": Column("BT", "credit", ("DropHighCovariance",), "whether clip-cov excludes the decision"),
    "entropy_weight": Column("B", "prepare", ("AnchorEntropy", "Distinct"), "weight of the row's entropy in the loss"),
    "logp_held": Column("BT", "prepare", ("HoldHighCovariance", "HoldUnlikely"), "log q that the decision is held to"),
    "variance_weight": Column("B", "prepare", ("FollowVariance",), "multiplier of the ratio's variance"),
    "clip_range": Column("BT", "prepare", ("ElasticRange",), "how far the ratio may leave 1"),
    "cost_advantage": Column("BT", "constraint", ("Multiplier",), "advantage of each decision in costs"),
    "cost_return": Column("BT", "constraint", ("Multiplier",), "regression target of the cost critic"),
}

ALWAYS = ("task", "engine")
"""Writers whose columns need no part of the recipe."""


def is_given(name: str) -> bool:
    """Returns whether the task or the engine writes the column."""
    return name in TABLE and TABLE[name].writer in ALWAYS


def writers_of(name: str) -> str:
    """Returns, as text, which parts can write the column."""
    entry = TABLE.get(name)
    if entry is None:
        return "no part of the library writes it. Add one that does before it"
    return f"{' or '.join(entry.parts)} ({entry.writer}) writes it"
