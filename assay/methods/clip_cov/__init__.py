"""clip-cov: grpo without the policy gradient of the few tokens that would cost most entropy.

    c_t = (log pi(a_t) - mean log pi) (A_t - mean A);  A_t <- 0 for a random share of the tokens with low < c_t < high
    kl_cov instead adds to the loss: coefficient * |log pi(a_t) - log pi_old(a_t)| on the share with the largest c_t

Cui et al. 2025. A step changes the entropy by minus the covariance of log-probability and advantage; few tokens make
up most of it.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Average, Edit, Exact, Measured, Method, probes
from assay.core.recipe import Recipe
from assay.methods.clip_cov.claims import DATA, kl_cov_by_hand, loss_by_hand, strays
from assay.methods.clip_cov.credit import DropHighCovariance, HoldHighCovariance, covariance_of
from assay.parts.aggregations import SequenceMean
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import Unclipped
from assay.parts.regularizers.divergence import EntropyBonus, KlWhereHeld
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults
from assay.recipes.group import with_policy, with_regularizers

SHARE = 0.01


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    base = recipes.grpo(world)
    return replace(base, name="clip-cov", credit=(*base.credit, DropHighCovariance(SHARE)))


def kl_cov(world: Defaults = LANGUAGE) -> Recipe:
    base, sequences = recipes.grpo(world), SequenceMean()
    held = replace(base, credit=(*base.credit, HoldHighCovariance(SHARE)))
    plain = with_policy(held, "kl-cov", PolicyGradient(trust=Unclipped(), aggregate=sequences))
    return with_regularizers(plain, KlWhereHeld(aggregate=sequences))


def watched(one: Recipe) -> Recipe:
    """Returns the recipe with its entropy among the metrics, without an entropy bonus."""
    stage = one.stages[0]
    return replace(one, stages=(replace(stage, regularizers=(*stage.regularizers, EntropyBonus(0.0))),))


METHOD = Method(
    paper="arXiv:2505.22617",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    variants={"kl-cov": kl_cov},
    departures=(
        "covariances are computed once per step, on all fresh tokens with their recorded log-probabilities",
        "tokens that the ratio's clip will cut may be among the dropped; the released code draws among the others",
        "the share is 1 % instead of 0.02 %: a step here has 1500 tokens, not millions",
        "no claim on pass@64: on many-ways it ends +0.004 [-0.013, 0.022] above grpo's (20 seeds), which is undecided",
    ),
    claims=(
        Exact("its gradient is the formula's", lambda: probes.formula_gap(recipe(), DATA, loss_by_hand), at_most=1e-9),
        Exact("any decision in the band may be left out, and no other", lambda: strays(recipe()), equals=0.0),
        Exact("the gradient of kl_cov is its formula's",
              lambda: probes.formula_gap(kl_cov(), DATA, kl_cov_by_hand), at_most=1e-9),
        Measured("keeps more entropy than grpo, mean over the run", "many-ways", watched(recipe(BIGRAMS)),
                 watched(recipes.grpo(BIGRAMS)), Average("entropy"), seeds=10, minutes=10.0, steps=100, looks=2),
        Measured("so does kl_cov", "sorting-5", watched(kl_cov()), watched(recipes.grpo()),
                 Average("entropy", 0.2), seeds=5, steps=100, warmup=60),
    ),
    mutants=(
        Edit("the largest ones", DropHighCovariance.apply, "lots(experience, scene.draw)", "-covariance"),
        Edit("a share of the band", DropHighCovariance.apply,
             "num_of(self.share, experience)", "max(1, int(self.share * int(in_band.sum())))"),
        Edit("the size of the covariance", DropHighCovariance.apply,
             "covariance > self.low", "covariance.abs() > self.low"),
        Edit("means within rows", covariance_of,
             "torch.where(experience.mask, column, 0.0).sum() / count", "column.mean(1, keepdim=True)"),
    ),
)  # fmt: skip
