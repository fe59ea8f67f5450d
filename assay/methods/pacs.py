"""pacs: classifies answers as right or wrong by their log-ratio, against the other answers of the group.

    psi_i = s_i - mean of the others' s,   s_i = beta sum_t (log pi(y_t) - log pi_old(y_t))
    loss = mean_i w_i (softplus(psi_i) - R_i psi_i),   w_i = G / (2 n_class) in groups with both classes

Li et al. 2025. At the sampling policy its gradient is rloo's, with equal weight for both classes; later in the same
batch it saturates as right and wrong answers separate, without a clip.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes, with_minibatches, with_policy
from assay.parts import CrossEntropy, OutcomeAsLabel


def recipe(preset: Preset = LANGUAGE, beta: float = 1.0, *, balanced: bool = True) -> Recipe:
    """Returns cross-entropy of outcomes with centred log-ratios as logits, in four minibatches."""
    objective = OutcomeAsLabel(scale=beta, centred=True, loss=CrossEntropy(balanced))
    # The loss compares answers of a group: single decisions, which other methods use in control, are no answers.
    source = preset.minibatch_source if preset.tokens else preset.on_policy_source
    base = replace(with_policy(recipes.rloo(preset), "pacs", objective), credit=(), source=source)
    return with_minibatches(base, preset, 4)


def unbalanced(preset: Preset = LANGUAGE) -> Recipe:
    """Every answer counts the same: rloo's gradient at the sampling policy."""
    return recipe(preset, balanced=False)


METHOD = Method(
    paper="arXiv:2509.02522",
    recipe=recipe,
    family="policy gradient",
    base=recipes.rloo,
    variants={"pacs-unbalanced": unbalanced},
    departures=(
        "beta is 1; the authors' scripts also have 2",
        "four updates a batch of answers, as in the authors' scripts",
    ),
    pilots=("against rloo without a clip, eight passes each, 3 pilot seeds show no difference (0.708 and 0.705)",),
)
