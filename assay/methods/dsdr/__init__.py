"""dsdr: pays right answers that differ from the group's others, and raises the entropy of the most distinct ones.

    r_i <- r_i + 0.001 d_i where right;  A_i = (r_i - mean) / (std + 1e-6);  grpo's loss with clip 0.2 and 0.28
    - 0.001 mean over prompts of sum_i w_i (1/T_i) sum_t -rho_t log pi(o_t),   w = softmax(5 d) over right answers

2026 (arXiv:2602.19895). Where all answers are right, grpo learns nothing; here the deviation divides the small bonus
out, and advantages have full size: the least distinct right answer is pushed down as a wrong one is elsewhere. The
second term is the entropy, estimated at the sampled tokens.
"""

from dataclasses import replace
from functools import partial

from assay import recipes
from assay.claims import Average, Edit, Exact, Expect, Measured, Method, probes, same_gradient
from assay.core.recipe import Recipe
from assay.methods.dsdr.claims import four, loss_by_hand
from assay.methods.dsdr.credit import Distinct, distinctness
from assay.parts.regularizers.entropy import MaskedEntropy
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults
from assay.recipes.group import with_regularizers


def recipe(world: Defaults = LANGUAGE, bonus: float = 0.001, entropy: float = 0.001) -> Recipe:
    base = recipes.grpo(world).set("trust.high", 0.28).set("scale.epsilon", 1e-6)
    distinct = replace(base, name="dsdr", credit=(Distinct(bonus), *base.credit))
    return with_regularizers(distinct, MaskedEntropy(entropy, mass=None, peak=0.0))


METHOD = Method(
    paper="arXiv:2602.19895",
    recipe=recipe,
    worlds=(LANGUAGE,),
    family="policy gradient",
    base=recipes.grpo,
    variants={"dsdr-bonus": partial(recipe, entropy=0.0), "dsdr-entropy": partial(recipe, bonus=0.0)},
    departures=(
        "distance of token counts (cosine) instead of a sentence encoder's; whole answers instead of their formulas",
        "the bound sigma_d is not given in the paper; d is at most 1",
        "no claim on different right answers: 0.97 against grpo's 0.88 of eight samples on many-ways, 1.63 against "
        "1.60 without rare prompts (3 pilot seeds each, the two designs tried), which is undecided",
        "groups weigh by their answers in the entropy term, as they do in grpo's loss",
    ),
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, probes.verified),
        Exact("where all are right a distinct answer has an advantage of full size",
              lambda: probes.advantages(recipe(), four(1, 1, 1, 1))[2], equals=0.863781, tolerance=1e-5),
        Exact("which does not depend on the bonus",
              lambda: probes.advantages(recipe(bonus=0.1), four(1, 1, 1, 1))[2], equals=0.866003, tolerance=1e-5),
        Exact("the wrong answer stays last",
              lambda: probes.advantages(recipe(), four(1, 0, 1, 1)).argmin(), equals=1.0),
        Exact("the weight of a distinct right answer beside a common one",
              lambda: -probes.credited(recipe(), four(1, 0, 1, 0)).column("entropy_weight")[2] / 4, equals=0.965555,
              tolerance=1e-5),
        Measured("fewer groups are without advantage than in grpo, mean over the run", "many-ways", recipe(BIGRAMS),
                 recipes.grpo(BIGRAMS), Average("zero_advantage_groups"), Expect.BELOW, minutes=6.0, steps=80, looks=2),
    ),
    mutants=(
        Edit("tau divides", Distinct.apply, "self.tau * distinct", "distinct / self.tau"),
        Edit("weights of all answers", Distinct.apply, "right & there", "there"),
        Edit("repeated answers count", distinctness, "texts.count(one) == 1", "texts.count(one) >= 1"),
        Edit("the deviation of grpo", recipe, '.set("scale.epsilon", 1e-6)', ""),
    ),
)  # fmt: skip
