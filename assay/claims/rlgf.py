"""Who wrote which decisions, what is learned of them, and what the guide makes of a beginning, by hand.

Axes: B rows, T decisions.
"""

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Engine, Exact, Measured, Placement, by_hand, probes
from assay.claims import same_gradient, sorting
from assay.claims.probes.schedules import handed_on
from assay.claims.testbeds.language.experts import experts
from assay.claims.testbeds.language.places import Keys, key_decisions
from assay.engine.loop_metrics import count_sampled
from assay.method import DISCARDED, PLACES, Draw, Experience, Recipe, Scene, random, recipes
from assay.methods.rlgf import RolledIn, RolledOut, aggrevated, check_rolled, d2lols, guided, recipe, rolled, rolled_out
from assay.models import Policy, TokenTable
from assay.parts import Among, Episodes
from assay.rollouts.text import written

TASK = sorting(9)


@dataclass(frozen=True)
class Teacher:
    """The models of a scene: a guide under the name `teacher`, and no other."""

    guide: Any

    def model(self, name: str) -> Any:
        """Returns the guide."""
        assert name == "teacher", name
        return self.guide


def gathered(ours: Recipe, task: Any, policy: Any, guide: Any, starts: int) -> tuple[Experience, Scene]:
    """Returns what the recipe's rollout gathers, and the scene with what it logged."""
    scene = Scene(task, Teacher(guide), Draw(0, (0,)), actor=policy, starts=np.arange(starts))  # type: ignore[arg-type]
    assert ours.rollout is not None
    with torch.no_grad():
        return ours.rollout(scene, ours.rollout.init(scene)), scene


def wrong_authors(ours: Recipe, starts: int = 6) -> float:
    """Returns how many answers are not the first h decisions of one's whole answer and what the other then writes; plus
    how far what counts as spent and what is recorded are from that.

    The one is the guide and the other the policy, unless the policy rolls in; u < 0.8 rolls in, h = 1 + floor(w (n -
    1)).
    """
    policy, guide = probes.small_policy(TASK, 0), probes.small_policy(TASK, 1)
    rows, scene = gathered(ours, TASK, policy, guide, starts)
    by_guide, draw = isinstance(ours.rollout, RolledIn), scene.draw
    (first, one), (then, two) = (guide, draw.at(23)), (policy, draw)
    if not by_guide:
        (first, one), (then, two) = (then, two), (first, one)
    later = rows.mask if by_guide else rows.column("foreign")
    own, special = rows.column("answer") & ~later, TASK.tokenizer.vocabulary
    wrong, spent = float(len(rows) != 4 * starts), 0
    for row, (start, member) in enumerate(product(range(starts), range(4))):
        at, length = (np.array([start]), np.array([member])), 0
        whole = TASK.play(first, *at, one, split=0, greedy=False)
        told = whole.action[0][whole.mask[0]].tolist()
        if random.uniform(draw.at(24), *at)[0] < 0.8:
            length = 1 + int(random.uniform(draw.at(25), *at)[0] * (len(told) - 1)) if len(told) > 1 else 0
            spent += len(told) - (0 if by_guide else length)
        before = [special.bos, *TASK.tokenizer.encode(TASK.items.item(start, 0).prompt)]
        begun = written([before], [told[:length]], torch.tensor([start]), special.pad)
        rest = TASK.resume(then, begun, at[1], two, split=0)
        said = [rows.action[row][mask[row]].tolist() for mask in (own, later)]
        wrong += said != [told[:length], rest.action[0][rest.mask[0]].tolist()]
    with torch.no_grad():
        learned = later if by_guide else own
        logp = policy.score(rows.with_columns(mask=learned), frozenset()).logp
    wrong += float(not ((rows.logp - logp) * learned).abs().max() <= 1e-4)
    wrong += 0.0 if by_guide else float((rows.logp * later).abs().max() + (rows.mask != own | later).sum())
    counted = sum(value for value, _ in scene.metrics[DISCARDED]) + count_sampled(rows)
    return wrong + abs(counted - spent - float(rows.mask.sum()))


def table_with(task: Any, logit: float) -> Any:
    """Returns a policy of independent places, uniform but for the demonstrated digit."""
    actor: Any = Policy(TokenTable()).build(task.spec)
    table, encode = actor.table, task.tokenizer.encode
    with torch.no_grad():
        for prompt in range(4):
            item, nothing = task.items.item(prompt, 0), torch.zeros(0, dtype=torch.int64)
            for place, token in enumerate(encode(item.demonstration)):
                row = table.row_of(torch.tensor(encode(item.prompt)[0]), torch.tensor(2 + place), nothing)
                table.table[row, token - task.tokenizer.vocabulary.eos - 1] = logit
    return actor


def success_gap() -> float:
    """Returns how far a uniform policy's success on ten decisions, half of the digits right at each, is from what
    follows for h uniform in 1 .. 9 after beginnings of a right guide: of 1/2 and 4/5 of 3,200 answers.
    """
    task, after = key_decisions(10, 10, 5), sum(0.5 ** (10 - h) for h in range(1, 10)) / 9
    gaps = []
    for share in (0.5, 0.8):
        rows, _ = gathered(recipe(prob=share), task, table_with(task, 0.0), table_with(task, 100.0), 800)
        own = float(task.judge(rows, 0).column("score").double().mean())
        gaps.append(abs(own - (1 - share) * 0.5**10 - share * after))
    return max(gaps)


def distance_from_guides_q() -> float:
    """Returns how many standard errors the mean outcome after right beginnings of the policy, of each length h, is from
    the guide's g^(10 - h), which is 0.68 for h = 1 and 0.96 for 9; far off if any other beginning is paid.

    The guide is right with g = 0.65^(1/10) at each of ten places: 0.65 in all.
    """
    task, g = key_decisions(10, 10, 5), 0.65**0.1
    guide = table_with(task, math.log((9 * g - 4) / (1 - g)))
    rows, _ = gathered(aggrevated(prob=1.0), task, table_with(task, 1.2), guide, 500)
    outcome, own = task.judge(rows, 0).column("score").double(), rows.mask & ~rows.column("foreign")
    length, said = own.sum(1), [str(one["completion"]) for one in task.texts(rows, 0)]
    digits = [Keys(10, 10, 5).accepts(prompt) for prompt in range(4)]
    right = [all(one in digits[row // 4 % 4][place] for place, one in enumerate(text[: int(length[row])]))
             for row, text in enumerate(said)]  # fmt: skip
    is_right = torch.tensor(right)
    far = [float(outcome[~is_right].sum()) * 1e9]
    for h in range(1, 10):
        q, some = g ** (10 - h), outcome[is_right & (length == h)]
        far.append(abs(float((some - q).sum())) / math.sqrt(max(1, len(some)) * q * (1 - q)))
    return max(far) if len(set(length.tolist())) == 9 else math.inf


def with_guides(data: Experience) -> Experience:
    """Returns the fragments with the later half of each row's decisions by the guide."""
    return data.add({"foreign": data.mask & (data.mask.long().cumsum(1) * 2 > data.mask.sum(1, keepdim=True))})


def losses_after_guide(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the losses of AggreVaTeD: the policy's decisions, and values of the guide's."""
    data, value = seen.experience, seen.value()
    foreign = data.column("foreign")
    advantage = by_hand.gae(data, value, 1.0, 0.95)
    gain = by_hand.clipped(by_hand.ratio(seen), by_hand.whitened(advantage, data), 0.2, 0.2)
    error = (value - (advantage + value).detach()).square() / 2
    return {"policy": -gain[data.mask & ~foreign].mean(), "value": error[foreign].mean()}


def gap_after_guide(ours: Recipe) -> float:
    """Returns the gap of the gradients; and 1 if what the other wrote has any."""
    data = with_guides(probes.fragments())
    return probes.formula_gap(ours, data, losses_after_guide)


def differs_without(ours: Recipe) -> float:
    """Returns whether anything that it gathers without a guide differs from `Episodes` of the same policy in a bit."""
    policy = probes.small_policy(TASK)
    rows, scene = gathered(ours, TASK, policy, None, 12)
    plain = Episodes(12, 4)(scene, {})
    names = ("action", "mask", "logp", "terminal", "truncated", "group")
    return float(not all(torch.equal(getattr(rows, name), getattr(plain, name)) for name in names))


def handed_gap(ours: Recipe) -> float:
    """Returns how far the guides of the recipe and its phases are from the weights that the first phase ends with;
    plus 1 for each whose policy has them too.
    """
    (first, *rest), spec, gaps = ours.before, TASK.spec, []
    before = Engine(first.recipe, spec, 1, Placement())
    for one in (*(phase.recipe for phase in rest), ours):
        after = Engine(one, spec, 0, Placement())
        after.load(handed_on(first, before), one)
        ends = before.flats["actor"].values
        gaps.append(probes.distance(ends, after.flats["teacher"].values))
        gaps.append(float(torch.equal(ends, after.flats["actor"].values)))
    return sum(gaps)


# ------------------------------------------------------------------------------------------------ what it is worth
def cloned() -> Recipe:
    """Returns the rival: the same guide's whole answers, by maximum likelihood, after as many tokens."""
    ours = aggrevated(PLACES, prob=0.0)
    stage = replace(recipes.sft(PLACES).stages[0], optimizer=PLACES.optimizer)
    return replace(ours, name="cloned", stages=(stage,), credit=(), critics={}, source=PLACES.on_policy_source,
                   steps=420)  # fmt: skip


TOKENS = AtEqual("pass_rate", reached="decisions_total")
BED = "key-decisions:length=12,keys=12,accepted=5"

CLAIMS = Claims(
    claims=(
        same_gradient("off-policy its gradients are those of ppo for tokens", recipe, by_hand.ppo_of_tokens,
                      probes.fragments),
        Exact("rolling out with the guide, the policy learns its own decisions and the critic the guide's",
              lambda: gap_after_guide(aggrevated()), at_most=1e-9, of="aggrevated"),
        Exact("what it gathers are beginnings of the guide's own answers, cut at random, and the policy's decisions "
              "after them, and all that the guide wrote counts as spent", lambda: wrong_authors(recipe()), equals=0.0),
        Exact("rolling out with the guide it is the other way round, and nothing of the guide's probabilities is kept",
              lambda: wrong_authors(aggrevated()), equals=0.0, of="aggrevated"),
        Exact("after a right guide's beginnings a uniform policy solves ten halves 57 or 91 times as often",
              success_gap, at_most=0.015, illustrates=True),
        Exact("a beginning of the policy is paid what the guide's exact value of its last decision is",
              distance_from_guides_q, at_most=4.0, of="aggrevated"),
        Exact("without beginnings it gathers what ppo gathers, in every bit", lambda: differs_without(
              recipe(prob=0.0)), equals=0.0, illustrates=True),
        Exact("the guide is what its phase ends with, and the policy is not", lambda: handed_gap(
              recipe().set("actor.width", 16)), equals=0.0, of="phases"),
        Exact("both later phases have this guide, and the first learns from what it makes of beginnings", lambda:
              handed_gap(d2lols().set("actor.width", 16)) + gap_after_guide(d2lols().before[1].recipe)
              + wrong_authors(d2lols().before[1].recipe), at_most=1e-9, of="d2lols"),
        Exact("the phase before it learns all demonstrated decisions by cross-entropy", lambda: probes.formula_gap(
              recipe().before[0].recipe, probes.sequences(),
              lambda seen: -by_hand.mean_of_decisions(seen.logp(), seen.experience)), at_most=1e-9, of="phases"),
        Exact("conversations in turns are refused", lambda: probes.is_refused(recipe(), experts())
              and probes.is_refused(aggrevated(), experts()), equals=1.0, of="refusals"),
        Measured("where the start is right once in 4,096 it ends above a clone of its guide by 0.1, after as many "
                 "tokens of both", BED, recipe(PLACES), cloned(), TOKENS, margin=0.1, seeds=5, minutes=6.0,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("all but the end is the guide's", rolled, "(where * (num - 1)).long()", "(num - 2)"),
        Edit("at most half", rolled, "where * (num - 1)", "0.5 * where * (num - 1)"),
        Edit("everyone rolls in", rolled, "< part.prob_in", "< 2"),
        Edit("the guide is free", rolled, "float(num.sum() - (given.sum() if first is policy else 0))", "0.0"),
        Edit("one row's beginning is another's", rolled, "np.argsort(np.argsort(is_in, kind=\"stable\")",
             "np.argsort(np.sort(is_in, kind=\"stable\")"),
        Edit("both draw the same numbers", rolled, "scene.draw.at(GUIDED) for", "scene.draw for"),
        Edit("the policy rolls out too", RolledOut.__call__, "scene.models.model(self.guide))", "scene.actor)"),
        Edit("the guide's probabilities", RolledOut.__call__, "torch.zeros_like(rows.logp)", "rows.logp.clone()"),
        Edit("the guide is demonstrated", RolledOut.__call__, "Origin.HINTED", "Origin.TEACHER"),
        Edit("the policy learns the guide's decisions", rolled_out, "holds=False", "holds=True"),
        Edit("the critic learns all", rolled_out, ', aggregate=Among(TokenMean(), "foreign")', ""),
        Edit("an entropy bonus", rolled_out, ", regularizers=()", ""),
        Edit("the policy is its guide", guided, 'hands={"actor": "teacher"}', 'hands={"actor": "actor"}'),
        Edit("turns too", check_rolled, "or has_turns(task)", ""),
        Edit("only what is marked", Among.chosen, "marked == self.holds", "marked"),
    ),
)
