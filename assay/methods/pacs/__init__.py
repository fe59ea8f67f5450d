"""pacs: classifies answers as right or wrong by their log-ratio, against the other answers of the group.

    psi_i = s_i - mean of the others' s,   s_i = beta sum_t (log pi(y_t) - log pi_old(y_t))
    loss = mean_i w_i (softplus(psi_i) - R_i psi_i),   w_i = G / (2 n_class) in groups with both classes

Li et al. 2025. At the sampling policy its gradient is rloo's, with equal weight for both classes; later in the same
batch it saturates as right and wrong answers separate, without a clip.
"""

from dataclasses import replace

import torch
from torch import Tensor

from assay import recipes
from assay.claims import Area, Edit, Exact, Measured, Method, by_hand, probes, same_gradient
from assay.core.recipe import Recipe
from assay.parts.objectives.labelled import CrossEntropy, OutcomeAsLabel
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults
from assay.recipes.group import with_policy


def recipe(world: Defaults = LANGUAGE, beta: float = 1.0, *, balanced: bool = True) -> Recipe:
    objective = OutcomeAsLabel(scale=beta, centred=True, loss=CrossEntropy(balanced))
    base = with_policy(recipes.rloo(world), "pacs", objective)
    return replace(base, credit=(), source=world.reuse)


def unbalanced(world: Defaults = LANGUAGE) -> Recipe:
    """Every answer counts the same: rloo's gradient at the sampling policy."""
    return recipe(world, balanced=False)


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    moved, right, losses = by_hand.moved(seen), by_hand.outcome(data) > 0.5, []
    for rows in by_hand.rows_of_groups(data):
        num = sum(bool(right[row]) for row in rows)
        for row in rows:
            psi = moved[row] - torch.stack([moved[other] for other in rows if other != row]).mean()
            weight = len(rows) / (2 * (num if right[row] else len(rows) - num)) if 0 < num < len(rows) else 1.0
            losses.append(weight * -torch.nn.functional.logsigmoid(psi if right[row] else -psi))
    return torch.stack(losses).mean()


def gap_to_rloo() -> float:
    """Returns the distance of its gradient from rloo's on a bandit at the sampling policy, without class weights."""
    logits = torch.tensor([0.3, -0.2, 0.5]).double()
    data = probes.bandit_experience([0, 1, 2, 0, 1, 1, 2, 2], [1, 0, 0, 0, 1, 1, 1, 0], logits, members=4)
    mine, theirs = (probes.bandit_gradient_of(one, data, logits) for one in (recipe(balanced=False), recipes.rloo()))
    return float((mine - theirs).abs().max())


METHOD = Method(
    paper="arXiv:2509.02522",
    recipe=recipe,
    family="policy gradient",
    base=recipes.rloo,
    variants={"pacs-unbalanced": unbalanced},
    departures=(
        "beta is 1; the authors' scripts also have 2",
        "answers of one batch are reused as in grpo; against rloo without a clip, reused as often, 3 pilot seeds show "
        "no difference (0.708 and 0.705)",
    ),
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, probes.verified),
        Exact("at the sampling policy, without class weights, it is rloo's", gap_to_rloo, at_most=1e-9),
        Measured("learns faster than grpo when every batch is used eight times: mean pass rate", "levels",
                 recipe(BIGRAMS).set("source.epochs", 8), recipes.grpo(BIGRAMS).set("source.epochs", 8),
                 Area("pass_rate"), seeds=10, minutes=10.0, steps=50, looks=2),
    ),
    mutants=(
        Edit("wrong and right change places", OutcomeAsLabel.__call__, "> RIGHT", "<= RIGHT"),
        Edit("not centred", recipe, "centred=True", "centred=False"),
        Edit("a mean over decisions", OutcomeAsLabel.__call__, "self.scale * of_rows",
             "self.scale / batch.mask.sum(1).clamp(min=1) * of_rows"),
    ),
)  # fmt: skip
