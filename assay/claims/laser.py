"""The loss of the spare token by hand, and how well its score tells right answers from wrong ones."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Measured, by_hand, probes
from assay.method import Draw, Recipe, Task, groups
from assay.methods.laser import SilentDecoder, SpareToken, balance, blended, recipe
from assay.tasks.language.addition import addition


def loss_by_hand(seen: probes.Seen, token: int = 3, share: float = 0.1) -> Tensor:
    """Returns grpo's loss with blended advantages, plus 0.1 times the balanced squared error of r_s, row by row."""
    data = seen.experience
    outcome, score = by_hand.outcome(data), torch.zeros(len(data), dtype=torch.float64)
    ended = (data.terminal & ~data.truncated & data.mask).nonzero().tolist()
    logp = seen.models["actor"].body.table[data.context["state"]].log_softmax(-1)[..., token]
    for row, column in ended:
        score[row] = 0.1 * (logp[row, column + 1] + 23.0)
    right = [row for row, _ in ended if outcome[row] > 0.5]
    wrong = [row for row, _ in ended if outcome[row] <= 0.5]
    error = sum(len(ended) / (2 * len(own)) * (score[own] - outcome[own]).square().sum() for own in (right, wrong))
    advantage = by_hand.standardised(data)
    told = score.detach().clamp(0.0, 1.0)
    assert data.group is not None
    mixed = advantage.clone()
    for label in data.group.unique():
        own = (data.group == label) & data.mask.any(1)
        if told[own].std() > 0.1:
            mixed[own] = (1 - share) * advantage[own] + share * (told[own] - told[own].mean()) / told[own].std()
    return by_hand.grpo_loss(seen, mixed) + 0.1 * error / data.mask.any(1).sum()


def mixed(scores: list[float]) -> Tensor:
    """Returns the blended advantages of four answers, the first one right, at a share of 0.1."""
    group = groups.groups_of(torch.zeros(4), 4, torch.device("cpu"))
    return blended(torch.tensor([1.5, -0.5, -0.5, -0.5]).double(), torch.tensor(scores).double(), group, 0.1)


def score_error(spare: SpareToken) -> float:
    """Returns how far r_s on a network is from the log-probability of the token after the end, decoded in turn; a cut
    answer and one that left training have 0.
    """
    task, said = addition(1), ["12", "7", "123", "4"]
    actor = probes.small_policy(task).requires_grad_(False)
    rows = probes.completed(task, said, [0, 1, 2, 3], cut=[2], faults=[3])
    found = spare.of(actor, replace(rows, terminal=rows.terminal | rows.truncated))  # as answers at the limit are
    error, vocabulary = float(found[2:].abs().max()), task.tokenizer.vocabulary
    for row, answer in enumerate(said[:2]):
        told = [vocabulary.bos, *task.tokenizer.encode(task.items.item(row, 0).prompt), *task.tokenizer.encode(answer)]
        (logp,) = probes.decoded_logp(actor, [*told, vocabulary.eos], [vocabulary.size - 1])
        error = probes.worst(error, abs(float(found[row]) - 0.1 * (float(logp) + 23.0)))
    return error


def times_written(recipe: Recipe) -> float:
    """Returns how often the spare token is written by a random policy; plus how far its recorded log-probabilities are
    from its own, over the whole vocabulary.
    """
    (played,), actor, _ = probes.gathered(recipe, addition(1), starts=16)
    again = actor.score(played, frozenset()).logp.detach()
    written = played.action[played.mask] == actor.vocabulary.size - 1
    return float(written.sum() + (again - played.logp).abs().max())


@dataclass(frozen=True)
class Separation:
    """AUC of r_s for right against wrong held-out answers, minus that of their mean log-probability."""

    spare: SpareToken
    prompts: int = 512

    def of(self, policy: Any, task: Task) -> float:
        """Returns the difference."""
        starts = np.arange(self.prompts)
        with torch.no_grad():
            played = task.judge(task.play(policy, starts, starts * 0, Draw(0, (11,)), split=1, greedy=False), 1)
            own = self.spare.of(policy.actor, played)
        ended, right = played.terminal.any(1) & ~played.truncated.any(1), played.column("score") >= 1.0
        mean = played.logp.sum(1) / played.mask.sum(1).clamp(min=1)
        return probes.auc(own[ended], right[ended]) - probes.auc(mean[ended], right[ended])


SMALL = SpareToken(-1, 0.25, -8.0)
"""For a small network, whose log pi(z) is about -8 at the start: 0 there, 1 at -4."""


CLAIMS = Claims(
    claims=(
        Exact("its gradient is the formula's", lambda: probes.formula_gap(
              recipe(spare=SpareToken(3), share=0.1), probes.verified(), loss_by_hand), at_most=1e-9),
        Exact("before the second half advantages are grpo's", lambda: probes.formula_gap(
              recipe(spare=SpareToken(3)), probes.verified(), lambda seen: loss_by_hand(seen, share=0.0)),
              at_most=1e-9, of="phases"),
        Exact("scores that hardly differ change nothing", lambda: (mixed([0.1, 0.0, 0.0, 0.1]) - torch.tensor(
              [1.5, -0.5, -0.5, -0.5])).abs().max(), equals=0.0),
        Exact("r_s is read one token after the end", lambda: score_error(SpareToken()), at_most=1e-5),
        Exact("the spare token is never written, log-probabilities are the policy's", lambda: times_written(recipe()),
              at_most=1e-5),
        Measured("its own score tells right answers from wrong ones better (AUC) than their mean log-probability",
                 "sorting-3", recipe(spare=SMALL).set("actor.width", 32).set("actor.layers", 1), 0.0,
                 metric=Separation(SMALL), seeds=10, minutes=6.0, steps=60, warmup=300, about=About.HEADLINE),
    ),
    mutants=(
        Edit("cut answers too", SpareToken.of, "ends = finished(rows)", "ends = rows.terminal & rows.mask"),
        Edit("not balanced", balance, "ended.sum() / (2.0 * many.double())", "1.0"),
        Edit("blended where scores are equal", blended, "deviation > 0.1", "deviation > 0.0"),
        Edit("the token can be written", SilentDecoder.logits, "changed[:, self.token] = -torch.inf", "pass"),
    ),
)
