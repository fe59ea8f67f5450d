"""Turns by hand: losses of both critics and of the policy, and what is decided again at replayed states.

Axes: B sequences, T decisions.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Average, Claims, DecisionsTo, Exact, Expect, Measured, probes
from assay.method import TABLE, Draw, Experience, Recipe, Scene, recipes
from assay.methods.archer import recipe
from assay.methods.archer.objectives import turn_advantage
from assay.models import Policy, Table
from assay.tasks.language.twenty_questions import twenty_questions


def in_turns() -> Experience:
    """Returns fragments with inner ends, in turns of two columns."""
    data = probes.fragments()
    return replace(data, turn=(torch.arange(7) // 2).expand_as(data.action))


def turns_of(data: Experience, row: int) -> list[list[int]]:
    """Returns the columns of each turn of a row: neighbouring decisions with one number, none across an end."""
    found: list[list[int]] = [[]]
    assert data.turn is not None
    for column in data.mask[row].nonzero().flatten().tolist():
        if found[-1] and (data.turn[row, found[-1][-1]] != data.turn[row, column] or ends(data, row, found[-1][-1])):
            found.append([])
        found[-1].append(column)
    return [columns for columns in found if columns]


def ends(data: Experience, row: int, column: int) -> bool:
    """Returns whether an episode ends with this decision."""
    return bool(data.terminal[row, column] or data.truncated[row, column])


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    data, logp = seen.experience, seen.logp()
    q, q_target = (seen.models[name](data.context, data.action) for name in ("q", "q_target"))
    value, value_target = seen.value(), seen.value("value_target")
    q_lost, value_lost, gained = [], [], []
    for row in range(len(data)):
        walked = turns_of(data, row)
        for k, columns in enumerate(walked):
            first, last = columns[0], columns[-1]
            goes_on = k + 1 < len(walked) and not ends(data, row, last)
            place = walked[k + 1][0] if goes_on else last + 1
            after = 0.0 if data.terminal[row, last] or place > 6 else value_target[row, place].detach()
            target = data.reward[row, columns].sum() + 0.99 * after
            q_lost.append((q[:, row, last] - target).square().sum() / 2)
            value_lost.append((value[row, first] - q_target[:, row, last].min().detach()).square() / 2)
            gained.append((q[:, row, last].min() - value[row, first]).detach() * logp[row, columns].sum())
    return {
        "q": torch.stack(q_lost).mean(),
        "value": torch.stack(value_lost).mean(),
        "policy": -torch.stack(gained).mean(),
    }


def wrong_utterances(recipe: Recipe) -> float:
    """Returns how many new turns of conversations are not: the recorded tokens before one of a row's turns, then one
    utterance of the policy up to its end token or limit; plus 1 if only first turns are drawn, or only recorded ones.
    """
    task = twenty_questions(2)
    (played,), _, _ = probes.gathered(recipe, task, starts=8)
    source, actor = recipe.stages[1].source, probes.small_policy(task, seed=1)
    batches = list(probes.drawn(source, Scene(task, probes.Only(actor), Draw(2), fresh=played)))
    known = {tuple(row[there].tolist()) for row, there in zip(played.action, played.context["valid"], strict=True)}
    prefixes = set()
    for row in range(len(played)):
        for columns in turns_of(played, row):
            prefixes.add(tuple(played.action[row, : columns[0]].tolist()))
    wrong, depths, novel = float(len(batches) != 16), set(), 0
    for batch in batches:
        with torch.no_grad():
            wrong += float(not ((actor.score(batch, frozenset()).logp - batch.logp) * batch.mask).abs().max() <= 1e-4)
        for row in range(len(batch)):
            first, said = int(batch.mask[row].nonzero()[0]), batch.action[row][batch.mask[row]].tolist()
            before = tuple(batch.action[row, :first].tolist())
            wrong += before not in prefixes or len(turns_of(batch, row)) != 1
            wrong += said[-1] != task.tokenizer.vocabulary.eos and len(said) != task.max_tokens
            depths.add(first)
            novel += not any(one[: first + len(said)] == (*before, *said) for one in known)
    wrong += recipe.stages[2].source != source or recipe.stages[2].trains != ("actor",)
    return wrong + float(len(depths) < 3) + float(novel == 0)


def distance_of_mean_worth(recipe: Recipe) -> float:
    """Returns how far the mean of Q over new actions is from 0.9: pi = (.9, .1), Q = (1, 0), recorded by (.5, .5)."""
    task = probes.TABLE_SPEC
    actor: Any = Policy(Table()).build(task)
    actor.body.table.data.copy_(torch.tensor([0.9, 0.1, 1e-9, 1e-9]).log())
    rows = probes.sequences(num=512, dtype=torch.float32)
    recorded = replace(rows, action=torch.randint(2, rows.action.shape, generator=torch.Generator().manual_seed(0)))
    scene = Scene(Named(task), probes.Only(actor), Draw(1), fresh=recorded)  # type: ignore[arg-type]
    batches = list(probes.drawn(recipe.stages[1].source, scene))
    worth = np.mean([float((batch.action[batch.mask] == 0).float().mean()) for batch in batches])
    return abs(float(worth) - 0.9)


class Named:
    """A task that is only its spec."""

    def __init__(self, spec: object) -> None:
        self.name, self.spec = "table", spec


EPISODES = probes.token_episodes(lambda tokens: float(sum(tokens) >= 2) + 0.3 * tokens[0], num_tokens=2, horizon=4)


LOGITS_SA = torch.linspace(-1.0, 1.0, EPISODES.num_states * 2, dtype=torch.float64).view(-1, 2).sin()


def slopes(turn_length: int) -> torch.Tensor:
    """Returns the gradient of each episode, [Y, S * A], under exact critics."""
    logits = LOGITS_SA.clone().requires_grad_()
    advantage = turn_advantage(probes.exact_values(EPISODES, LOGITS_SA, turn_length))
    episodes = (advantage * EPISODES.decision_logp(logits)[0]).sum(1)
    return torch.stack([torch.autograd.grad(one, logits, retain_graph=True)[0].flatten() for one in episodes])


def bias() -> torch.Tensor:
    chance, exact = EPISODES.logp(LOGITS_SA).exp().T, probes.exact_table_gradient(EPISODES, LOGITS_SA).flatten()
    return torch.stack([((chance * slopes(length)).sum(0) - exact).abs().max() for length in (1, 2, 3)]).max()


def variance_left() -> torch.Tensor:
    """Returns the variance of an episode's gradient: turns of two tokens relative to whole episodes."""
    chance = EPISODES.logp(LOGITS_SA).exp().T
    spreads = [(chance * (found - (chance * found).sum(0)).square()).sum() for found in (slopes(2), slopes(4))]
    return spreads[0] / spreads[1]


CLAIMS = Claims(
    claims=(
        Exact("the gradients of Q, V and the policy are the formula's",
              lambda: probes.formula_gap(recipe(TABLE), in_turns(), losses_by_hand), at_most=1e-9),
        Exact("V and the policy train on new turns of the current policy at replayed states",
              lambda: wrong_utterances(recipe()), equals=0.0),
        Exact("whatever was recorded, V's target is the policy's own mean worth",
              lambda: distance_of_mean_worth(recipe(TABLE)), at_most=0.01, of="sources"),
        Exact("with exact critics the expected gradient is exact", bias, equals=0.0),
        Exact("what follows a turn adds no variance: two turns have less than one", variance_left, at_most=0.75,
              of="theory"),
        Measured("it wins 55 % of its games after fewer decisions than reinforce", "twenty-questions-2", recipe(),
                 recipes.reinforce(), metric=DecisionsTo(0.55, "reward"), expect=Expect.BELOW, seeds=5, minutes=6.0,
                 steps=24, warmup=120, about=About.HEADLINE),
        Measured("where episodes have many noisy turns its return after as many decisions is above reinforce's, mean "
                 "over the last quarter", "gridworld:size=4,slip=0.3", recipe(TABLE), recipes.reinforce(TABLE),
                 metric=Average("reward", 0.25), minutes=4.0, steps=24, about=About.HEADLINE),
    ),
)
