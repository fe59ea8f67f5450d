"""Formats as arms of a bandit, and answers of each format. Axes: B sequences, T decisions."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Final, Measured, bandit, by_hand, probes, refuses, same_gradient
from assay.method import BIGRAMS, Experience, Recipe
from assay.claims.testbeds.language.formats import formats
from assay.methods.echo_chamber import ANCHORED, KeepRight, expert, pretrained, recipe
from assay.parts import CountModes

BANDIT = bandit((0.5, 0.5))


SCRIPT = {
    "def f(x):\n  return 7": "function", "def g(): 7": "function", "<llm-code>print(7)</llm-code>7": "code",
    "Definitely 7": "text", "it is\n7": "text", "I define it: 8": "text", "7": "text", "...": "other",
}  # fmt: skip
"""Answers and their formats."""


def loss_with_kl(seen: probes.Seen) -> Tensor:
    return by_hand.grpo_loss(seen) + 0.01 * by_hand.mean_of_decisions(by_hand.k3(seen), seen.experience)


DIGITS = {"01": "format-0", "49": "format-0", "5": "format-1", "70": "format-1", "8": "format-2", "99": "format-2"}
"""Answers of the testbed and their formats, of which the start uses 5, 3 and 2 tenths."""


def expert_by_hand(seen: probes.Seen, once: bool = True) -> Tensor:
    """Returns the negative log-likelihood of right answers, of equal ones in a group the first alone if `once`."""
    data, kept = seen.experience, []
    for rows in by_hand.rows_of_groups(data):
        right = [row for row in rows if by_hand.outcome(data)[row] > 0.5]
        said = {row: data.action[row][data.mask[row]].tolist() for row in right}
        kept += [row for row in right if not once or all(said[row] != said[one] for one in right if one < row)]
    return -torch.cat([seen.logp()[row][data.mask[row]] for row in kept]).mean()


def repeated() -> Experience:
    """Returns groups whose first, second and last rows say the same, and are right in three groups of four."""
    data = probes.verified()
    row = torch.arange(len(data))
    same = torch.isin(row % 8, torch.tensor([0, 1, 7]))
    length = torch.where(same, 2, data.mask.sum(1)).unsqueeze(1)
    column = torch.arange(data.num_columns)
    mask, last = (column >= 1) & (column <= length), column == length
    action = torch.where(same.unsqueeze(1), 3, data.action)
    right = (row // 8 != 1).unsqueeze(1) & last
    return replace(data, action=action, mask=mask, reward=right.double(), terminal=last, truncated=last & False)


def likelihood_by_hand(seen: probes.Seen) -> Tensor:
    return -by_hand.mean_of_decisions(seen.logp(), seen.experience)


def first_phase() -> Recipe:
    """Returns the recipe that fits the mixture."""
    (phase,) = pretrained().before
    assert phase.hands == {"actor": "actor"}
    return phase.recipe


ALONE = recipe(BIGRAMS)


WITH_KL = recipe(BIGRAMS, 0.1)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        same_gradient("with the KL its gradient is that of grpo plus 0.01 k3", ANCHORED, loss_with_kl),
        same_gradient("expert iteration has the gradient of the likelihood of different right answers", expert,
                      expert_by_hand, (*probes.UNIT_OUTCOME, repeated), of="expert iteration"),
        same_gradient("with duplicates it has that of all right answers", partial(expert, once=False),
                      partial(expert_by_hand, once=False), (*probes.UNIT_OUTCOME, repeated), of="expert iteration"),
        Exact("expert iteration counts formats too", lambda: probes.mode_gap(expert(), DIGITS, formats()),
              at_most=1e-9, of="formats"),
        same_gradient("pre-training has the gradient of the likelihood of all demonstrations", first_phase,
                      likelihood_by_hand, of="phases"),
        Exact("answers of each format are counted", lambda: probes.mode_gap(recipe(), SCRIPT), at_most=1e-9),
        Exact("on a task that says its formats, those are counted",
              lambda: probes.mode_gap(recipe(), DIGITS, formats()), at_most=1e-9),
        refuses("a task without text is refused", recipe, lambda: BANDIT),
        Measured("each prompt ends with 0.8 of its answers in one format", "formats", ALONE, 0.8, Final("own_share"),
                 seeds=10, minutes=4.0, steps=100, looks=2, about=About.HEADLINE),
        Measured("the KL to the start leaves more of the mixture", "formats", ALONE, WITH_KL, Final("own_share"),
                 seeds=10, minutes=6.0, steps=100, looks=2, about=About.COMPONENT),
        Measured("by expert iteration with duplicates each prompt ends with 0.8 of its answers in one format",
                 "formats", expert(BIGRAMS, once=False), 0.8, Final("own_share"), minutes=4.0, steps=100, looks=2,
                 about=About.HEADLINE),
        Measured("expert iteration without duplicates leaves more of the mixture, where a format has few texts",
                 "formats", expert(BIGRAMS, once=False), expert(BIGRAMS), Final("own_share"), seeds=5, minutes=4.0,
                 steps=100, about=About.COMPONENT),
        Measured("pre-trained on a mixture, each prompt ends with 0.8 of its answers in one format",
                 "formats:mixture=262", pretrained(BIGRAMS), 0.8, Final("own_share"), seeds=10, minutes=4.0, steps=100,
                 looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("equal answers of other prompts count", KeepRight.apply, "(label[row], *experience", "(0, *experience"),
        Edit("the last of equal answers", KeepRight.apply, ".nonzero().flatten().tolist()",
             ".nonzero().flatten().flip(0).tolist()"),
        Edit("a part of the answer is enough", CountModes.mode_of, "re.fullmatch", "re.search"),
        Edit("garbage is text", CountModes.mode_of, "next(found, OTHER)", "next(found, list(self.modes)[-1])"),
        Edit("a dot stops at a newline", CountModes.mode_of, ", re.DOTALL", ""),
        Edit("only right answers are classified", CountModes.apply, "len(own), len(found)", "sum(own), len(found)"),
    ),
)
