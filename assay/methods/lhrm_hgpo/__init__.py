"""lhrm-hgpo: half the group must think, half not; the better half teaches the mode token alone.

    A_t = A_intra + alpha [t is the mode token] A_inter,  A_intra = std. of [best of its half], alpha = 1
    A_inter = std. of [in the winning half],  think wins if mean R(think) > mean R(not) + 0.2;  loss = grpo's, clip 0.5

Jiang et al. 2025. A model that thinks about every prompt wastes tokens, one that is free to choose stops trying the
mode that it rarely takes. Forced halves compare both modes on every prompt. The mode token is not sampled, so its push
is no policy gradient: it has the same size whatever pi(mode) is, and ends with the clip, the KL and changing winners.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Edit, Exact, Final, Measured, Method, probes
from assay.core.recipe import Copy, Recipe
from assay.methods.lhrm_hgpo import claims
from assay.methods.lhrm_hgpo.credit import HybridCredit, halves, is_best
from assay.methods.lhrm_hgpo.rollout import ForcedFirst, opening_logp
from assay.parts.aggregations import SequenceMean
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import Clip
from assay.parts.regularizers.divergence import KlToReference
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults
from assay.recipes.group import with_policy
from assay.tasks.control.cartpole import cartpole

MODES = "formats:shares=19,right=11,hard=4,cost=0.2"
"""The start thinks nine times of ten (digits 1 to 9), for 0.2 of the score; half of the prompts can do without (0)."""


def recipe(world: Defaults = LANGUAGE, openings: tuple[str, ...] = ("0", "5")) -> Recipe:
    objective = PolicyGradient(trust=Clip(0.5, 0.5), aggregate=SequenceMean())
    base = with_policy(recipes.grpo(world), "lhrm-hgpo", objective)
    assert base.rollout is not None
    return replace(
        base,
        rollout=ForcedFirst(base.rollout.num_starts, openings=openings),
        credit=(HybridCredit(),),
        stages=(replace(base.stages[0], regularizers=(KlToReference(0.001, aggregate=SequenceMean()),)),),
        copies={"reference": Copy("actor")},
    )


def tags(world: Defaults = LANGUAGE) -> Recipe:
    """Returns the recipe that forces <no_think> and <think>, for a pretrained model whose answers begin with them."""
    return recipe(world, ("<no_think>", "<think>"))


METHOD = Method(
    paper="arXiv:2505.14631",
    recipe=recipe,
    worlds=(LANGUAGE,),
    default_task=MODES,
    family="policy gradient",
    base=recipes.grpo,
    variants={"tags": tags},
    departures=(
        "no supervised stage; a mode is a first digit, its length a cost; lhrm-hgpo:tags forces the paper's tags",
        "4 answers in each mode instead of 2; all tied best ones have rank 1 (the paper does not say)",
        "KL of tokens to the start, not of whole answers to a reference of each outer iteration; a mean over sequences",
        "three designs were tried: with 16 shared features grpo is ahead, 0.74 to 0.53 (3 pilot seeds); with both "
        "modes equally likely at the start they tie, 0.98; in the claim's design its pass rate is 0.93, grpo's 0.97",
    ),
    claims=(
        Exact("its gradient is the formula's, for scores and for tied answers", lambda: max(probes.formula_gap(
              recipe(), claims.in_modes(data()), claims.loss_by_hand) for data in (probes.sequences, probes.verified)),
              at_most=1e-9),
        Exact("one mode is grpo on ranks", lambda: probes.formula_gap(
              recipe(), claims.in_modes(probes.sequences(), modes=1), claims.rank_loss), at_most=1e-9),
        Exact("four in each mode, any scores: ranks 1.5 and -.5, modes .93541", lambda: claims.gap_of_four(recipe()),
              at_most=1e-5),
        Exact("the push on the mode is .43301 however often it is taken", lambda: claims.gap_of_push(recipe()),
              at_most=1e-9),
        Exact("thinking wins by more than 0.2 only", lambda: claims.wrong_winners(recipe()), equals=0.0),
        Exact("rows begin as forced, with the free policy's log-probabilities", lambda: claims.wrong_rows(recipe()),
              at_most=1e-5),
        Exact("tasks without tokens, and without the tags' letters, are refused", lambda: probes.is_refused(
              recipe(), cartpole()) and probes.is_refused(tags(), claims.DIGITS), equals=1.0),
        Measured("it takes the mode that a prompt needs more often than grpo, which begins freely", MODES,
                 recipe(BIGRAMS).set("actor.rank", 0), recipes.grpo(BIGRAMS).set("actor.rank", 0),
                 Final("cheapest_share"), seeds=10, minutes=6.0, steps=100, looks=2),
    ),
    mutants=(
        Edit("the mode's credit on all tokens", HybridCredit.apply, ' * experience.column("forced")', ""),
        Edit("margin for thinking", HybridCredit.apply, "(mode == 0)", "(mode == 1)"),
        Edit("ranks in the whole group", HybridCredit.apply, "is_best(outcome, own)", "is_best(outcome, by_group)"),
        Edit("scores in place of ranks", HybridCredit.apply, "is_best(outcome, own).to(outcome)", "outcome"),
        Edit("scores within 1 are equal", is_best, "by_group) - TIE", "by_group) - 1.0"),
        Edit("modes of all groups together", halves, "by_group.index * (mode.max() + 1) + mode", "mode"),
        Edit("forced tokens are sure", opening_logp, "logits.log_softmax(-1)[:, token]", "logits[:, token].mul(0)"),
        Edit("forced tokens do not learn", ForcedFirst.__call__, "mask=played.mask | forced", "mask=played.mask"),
        Edit("the same opening for all", ForcedFirst.__call__, "samples % len(told)", "samples * 0"),
    ),
)  # fmt: skip
