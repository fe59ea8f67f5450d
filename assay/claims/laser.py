"""The loss of the spare token by hand, and how well its score tells right answers from wrong ones.

Axes: B sequences, T decisions.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Item, Loop, Measured, addition, by_hand, probes, sorting
from assay.method import Draw, Recipe, Scene, Task, groups
from assay.methods.laser import SilentDecoder, SpareConstant, SpareToken, balance, blended, finished, recipe
from assay.tasks.language.scratch import scratch
from assay.tasks.language.spare import spare_token


def loss_by_hand(seen: probes.Seen, token: int = 3, share: float = 0.1) -> Tensor:
    """Returns grpo's loss with blended advantages, plus 0.1 times the balanced squared error of r_s, row by row; r_s is
    0 at the mean log-probability of the token in this batch, the first one.
    """
    data = seen.experience
    outcome, score = by_hand.outcome(data), torch.zeros(len(data), dtype=torch.float64)
    ended = (data.terminal & ~data.truncated & data.mask).nonzero().tolist()
    logp = seen.models["actor"].body.table[data.context["state"]].log_softmax(-1)[..., token]
    constant = sum(float(logp[row, column + 1].detach()) for row, column in ended) / len(ended)
    for row, column in ended:
        score[row] = 2.3 / -constant * (logp[row, column + 1] - constant)
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
    """AUC of r_s, that is of log pi(z), for right against wrong held-out answers, minus that of their mean
    log-probability.
    """

    spare: SpareToken
    prompts: int = 512

    def of(self, policy: Any, task: Task) -> float:
        """Returns the difference."""
        starts = np.arange(self.prompts)
        with torch.no_grad():
            played = task.judge(task.play(policy, starts, starts * 0, Draw(0, (11,)), split=1, greedy=False), 1)
            own = self.spare.logp(policy.actor, played)
        ended, right = played.terminal.any(1) & ~played.truncated.any(1), played.column("score") >= 1.0
        mean = played.logp.sum(1) / played.mask.sum(1).clamp(min=1)
        return probes.auc(own[ended], right[ended]) - probes.auc(mean[ended], right[ended])


SMALL = recipe().set("actor.width", 32).set("actor.layers", 1)


def measured_once(ours: Recipe) -> float:
    """Returns how far the constants of two batches are from the mean log-probability after the ended answers of the
    first one.
    """
    task = addition(1)
    engine = Loop(ours.set("actor.width", 16).set("actor.layers", 1), task, seed=0, num_steps=1).engine
    part, scene, found = ours.credit[0], Scene(task, engine), list[float]()
    state = part.init(scene)
    for said in (["12", "7", "123"], ["4", "5", "6"]):
        rows = probes.completed(task, said, [0, 1, 2], cut=[2])
        found += part(rows, scene, state).column("spare_constant").tolist()
    first = probes.completed(task, ["12", "7"], [0, 1])
    wanted = SpareToken().logp(engine.models["actor"], first).detach().mean()
    return probes.distance(found, [float(wanted)] * 6)


def spare_errors() -> float:
    """Returns how many tasks have the spare token in a text, or another one than the last where none has that."""
    tasks = [addition(1), sorting(3), probes.listed(Item("q", "7", "7")), scratch(4)]
    wrong = 0
    for task in tasks:
        said = {one for item in task.items_of(np.arange(64), 0) for one in task.tokenizer.encode(
            item.prompt + item.demonstration)}  # fmt: skip
        wrong += spare_token(task) in said
    return wrong + (spare_token(tasks[0]) != tasks[0].tokenizer.vocabulary.size - 1)


CLAIMS = Claims(
    claims=(
        Exact("its gradient is the formula's", lambda: probes.formula_gap(
              recipe(spare=SpareToken(3), share=0.1), probes.verified(), loss_by_hand), at_most=1e-9),
        Exact("before the second half advantages are grpo's", lambda: probes.formula_gap(
              recipe(spare=SpareToken(3)), probes.verified(), lambda seen: loss_by_hand(seen, share=0.0)),
              at_most=1e-9, of="schedules"),
        Exact("scores that hardly differ change nothing", lambda: (mixed([0.1, 0.0, 0.0, 0.1]) - torch.tensor(
              [1.5, -0.5, -0.5, -0.5])).abs().max(), equals=0.0),
        Exact("the constant is measured in the first batch and kept", lambda: measured_once(recipe()), at_most=1e-5),
        Exact("the spare token is one that no prompt and no answer has", lambda: spare_errors(), equals=0.0,
              of="tasks"),
        Exact("r_s is read one token after the end", lambda: score_error(SpareToken(constant=-23.0)), at_most=1e-5),
        Exact("the spare token is never written, log-probabilities are the policy's", lambda: times_written(recipe()),
              at_most=1e-5),
        Measured("its own score tells right answers from wrong ones better (AUC) than their mean log-probability",
                 "sorting-3", SMALL, 0.0, metric=Separation(SpareToken(spare_token(sorting(3)))),
                 seeds=10, minutes=6.0, steps=60, warmup=300, about=About.HEADLINE),
    ),
    mutants=(
        Edit("cut answers too", finished, " & ~experience.truncated", ""),
        Edit("the constant follows the policy", SpareConstant.apply, 'state["constant"] is None and bool', "bool"),
        Edit("not balanced", balance, "ended.sum() / (2.0 * many.double())", "1.0"),
        Edit("blended where scores are equal", blended, "deviation > 0.1", "deviation > 0.0"),
        Edit("the token can be written", SilentDecoder.logits, "changed[:, self.token] = -torch.inf", "pass"),
    ),
)
