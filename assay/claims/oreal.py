"""Losses of chosen answers, token weights and their AUC by hand. Axes: B sequences, T decisions."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Final, Loop, Measured, by_hand, probes
from assay.claims.testbeds.language.enumerable import DIGITS, TOKENS
from assay.claims.testbeds.language.places import Keys, key_decisions
from assay.method import BIGRAMS, CreditWeight, Experience, Recipe
from assay.methods.oreal import MeanOfAnswer, MeanOfChosen, TokenWeights, recipe, right_only
from assay.parts import PairUp


def kept_rows(data: Experience) -> dict[int, bool]:
    """Returns the first right and the first wrong row of each group that has both, and whether it is right."""
    assert data.group is not None
    found: dict[int, bool] = {}
    for label in data.group.unique():
        rows = ((data.group == label) & data.mask.any(1)).nonzero().flatten().tolist()
        right = [row for row in rows if by_hand.outcome(data)[row] > 0.5]
        wrong = [row for row in rows if row not in right]
        if right and wrong:
            found |= {right[0]: True, wrong[0]: False}
    return found


def losses_by_hand(seen: probes.Seen, wrong: float) -> dict[str, Tensor]:
    data, score, logp, ref = seen.experience, seen.value(), seen.logp(), seen.logp("reference").detach()
    right = (by_hand.outcome(data) > 0.5).double()
    advantage, fits, away = by_hand.against_others(data, 2.0 * right - 1.0), [], []
    terms: dict[bool, list[Tensor]] = {True: [], False: []}
    for row, is_right in kept_rows(data).items():
        columns = data.mask[row].nonzero().flatten().tolist()
        mean = score[row, columns].mean()
        fits.append(-torch.nn.functional.logsigmoid(mean if is_right else -mean))
        for place, column in enumerate(columns):
            chance = score[row, columns[: place + 1]].mean().sigmoid().detach()
            weight = ((chance if is_right else 1.0 - chance) - 0.5).clamp(min=0.0) / 0.5
            factor = 1.0 if is_right else wrong
            terms[is_right].append(-factor * weight * advantage[row] * logp[row, column])
            ahead = ref[row, column] - logp[row, column]
            away.append(ahead.exp() - ahead - 1.0)
    policy = sum(torch.stack(one).mean() for one in terms.values()) + 0.01 * torch.stack(away).mean()
    return {"policy": policy, "tokens": torch.stack(fits).mean()}


def gap(ours: Recipe, wrong: float = 0.5) -> float:
    """Returns the largest gap of graded outcomes, of right and wrong ones, and of two batches of equal groups: in the
    last the longest answers of a group come first, so that they are the kept ones, and no column follows them.
    """
    padded = probes.verified()
    assert padded.group is not None
    full = padded.now.rows(torch.argsort(10 * padded.group - padded.mask.sum(1), stable=True))
    made = (probes.graded, probes.binary, lambda: padded, lambda: full)
    return probes.formula_gap(ours, made, lambda seen: losses_by_hand(seen, wrong))


def warm_up_gap(ours: Recipe) -> float:
    """Returns the gap of the first phase's token model; 1 more if it trains the policy or keeps a model to itself."""
    first, expected = ours.before[0], {"actor": "actor", "value": "value"}
    loose = first.hands != expected or [stage.name for stage in first.recipe.stages] != ["tokens"]

    def fit(seen: probes.Seen) -> dict[str, Tensor]:
        return {"tokens": losses_by_hand(seen, 0.5)["tokens"]}

    return probes.formula_gap(replace(first.recipe, copies=ours.copies), probes.UNIT_OUTCOME, fit) + loose


def weights(rule: CreditWeight, scores: Sequence[float]) -> Tensor:
    """Returns the weights of the tokens of a right and of a wrong answer with these scores; a prompt's column stands
    before them.
    """
    row = torch.tensor([9.0, *scores]).repeat(2, 1)
    data = probes.bandit_experience([0, 0], [1.0, 0.0], torch.zeros(2))
    mask = torch.tensor([False, *[True] * len(scores)]).repeat(2, 1)
    return rule(torch.tensor([[1.0], [-1.0]]).expand_as(row), replace(data, mask=mask).add({"value": row}))[:, 1:]


def distance_from_posterior(ours: Recipe, size: int) -> float:
    """Returns how far the kept right answers of all groups of `size` are from (2/3, 1/3): arms with probabilities .5,
    .2, .2, .1, of which the second and the fourth are right.
    """
    pair = next(part for part in ours.credit if isinstance(part, PairUp))
    prob, kept = (0.5, 0.2, 0.2, 0.1), [0.0, 0.0]
    for arms in product(range(4), repeat=size):
        data = pair(probes.bandit_experience(arms, [float(arm % 2) for arm in arms], torch.zeros(4)))
        for row in (data.column("chosen") > 0).nonzero().flatten().tolist():
            kept[arms[row] // 2] += float(torch.tensor([prob[arm] for arm in arms]).double().prod())
    return abs(kept[0] / sum(kept) - 2 / 3)


def token_auc(ours: Recipe, seed: int, steps: int | None = None) -> float:
    """Returns the chance that a token after the first wrong key has a lower running mean than one before it, of kept
    wrong answers at equal places, after the first phase or `steps` of it, where 2 of 8 tokens decide.
    """
    task = key_decisions(length=8, accepted=4)
    assert isinstance(task.items, Keys)
    steps = steps or ours.before[0].steps
    loop = Loop(ours.before[0].recipe, task, seed=seed, num_steps=steps + 4)
    for _ in range(steps):
        loop.step()
    below = pairs = 0.0
    for _ in range(4):
        fresh = loop.step().fresh
        assert fresh is not None
        fresh = fresh.rows((fresh.column("chosen") < 0).nonzero().flatten())
        own = slice(task.max_prompt, task.max_prompt + 8)
        digit, prompt = fresh.action[:, own] - TOKENS.ids[DIGITS[0]], fresh.column("start") % task.items.prompts
        right = task.items.accepted_digits()[prompt].gather(2, digit.unsqueeze(2)).squeeze(2)
        after = (~right).cumsum(1) - (~right).long() > 0
        mean = fresh.column("value")[:, own].cumsum(1) / torch.arange(1, 9)
        for place in range(1, 8):
            gaps = mean[after[:, place], place].unsqueeze(1) - mean[~after[:, place], place].unsqueeze(0)
            below, pairs = below + float((gaps < 0).sum() + 0.5 * (gaps == 0).sum()), pairs + gaps.numel()
    return below / max(1.0, pairs)


CLAIMS = Claims(
    claims=(
        Exact("its gradients are those of the formulas", lambda: gap(recipe()), at_most=1e-9),
        Exact("without wrong answers its gradients are those of the formulas",
              lambda: gap(right_only(), wrong=0.0), at_most=1e-9, of="oreal-right"),
        Exact("the first phase is the token model's alone", lambda: warm_up_gap(recipe()), at_most=1e-9),
        Exact("the kept right answer has the distribution of pi given right, for groups of 2 and 3",
              lambda: max(distance_from_posterior(recipe(), size) for size in (2, 3)), at_most=1e-9),
        Measured("the token model ranks tokens after the first wrong key of a wrong answer below those before it, at "
                 "equal places: AUC above 0.7", "", Computed(
                     partial(token_auc, recipe(BIGRAMS)), small=partial(token_auc, recipe(BIGRAMS), steps=2)), 0.7,
                 seeds=10, minutes=2.0, looks=2, about=About.COMPONENT),
        Measured("it is right more often than by learning from right answers alone, after as many steps", "levels",
                 recipe(BIGRAMS), right_only(BIGRAMS), Final("pass_rate"), seeds=10, minutes=6.0, steps=100, looks=2,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("all tokens in one denominator", MeanOfChosen.count, "self.weigh(batch)", "batch.weight"),
        Edit("the mean of the whole answer", TokenWeights.__call__, ".cumsum(1) / mask.cumsum(1).clamp(min=1)",
             ".sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)"),
        Edit("wrong answers count full", recipe, "TokenWeights(wrong)", "TokenWeights(2 * wrong)"),
        Edit("outcomes 0 and 1", recipe, "Constant(0.5)", "Constant(1.0)"),
        Edit("each token is fitted", MeanOfAnswer.__call__, "mean.unsqueeze(1).expand_as(score)", "score"),
    ),
)
