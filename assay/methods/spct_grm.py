"""spct-grm: a judge that is a grpo policy; it scores responses, and several of its judgements are summed.

    reward = +1 if the score of the best response > every other score, else -1;   A = (r - mean) / std, groups of 4
    vote: S*_i = sum_k S_ik over k judgements, the order of the responses shuffled for each;   the rest is grpo

Liu et al. 2025 (DeepSeek-GRM). A judge that writes before it scores can be sampled several times, a scalar reward model
cannot. A tie loses in training; in a vote it is broken by the shuffled order.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes, with_regularizers
from assay.parts import Episodes, FromFunction, KlToReference, RightRanking, SequenceMean


def recipe(preset: Preset = LANGUAGE, kl: float = 0.08) -> Recipe:
    """Returns grpo for a judge: rewards are for ranking responses rightly."""
    rollout, reward = Episodes(num_starts=32, group_size=4), FromFunction(RightRanking())
    judge = replace(recipes.grpo(preset), name="spct-grm", rollout=rollout, rewards=(reward,))
    return with_regularizers(judge, KlToReference(kl, aggregate=SequenceMean()))


METHOD = Method(
    paper="arXiv:2504.02495",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="judging",
    family="preference",
    base=recipes.grpo,
    departures=(
        "judgements are scores alone: a small policy writes no principles and no critique",
        "the cold start is supervised warm-up on demonstrations, without rejection and hinted samples",
        "a vote samples at temperature 1 instead of 0.5; its meta scores are given, no meta scorer is trained",
        "easy items are not removed beforehand; clip 0.2 and the k3 estimator of KL are assumed",
        "not measured: meta scores, which are given and not learned, and a Bradley-Terry scalar of equal size",
    ),
)
