"""gbrl: policy and value are sums of decision trees; every update fits one more to the output gradient.

    f <- f - step * tree(s),  leaf = mean over its rows of d loss / d f(s);  loss = ppo's (or a2c's, or any other)

Fuhrer, Tessler & Dalal 2024. Losses see outputs only, so they stay unchanged. Policy and value share a tree's
conditions, not its leaves and step sizes. Categorical features are tested for equality; the scale of a feature does
not matter.
"""

from assay.method import CONTINUOUS, CONTROL, TABLE, Method, Preset, Recipe, ppo, recipes
from assay.methods.gbrl.base import advantage_weighted, gbrl, on_trees
from assay.methods.gbrl.optimizer import NodeWise, SquaredError


def node_wise(preset: Preset = CONTROL) -> Recipe:
    """Returns gbrl with trees that have a condition for each node."""
    return on_trees(ppo(preset), tree=NodeWise(score=SquaredError()))


def boosted_a2c(preset: Preset = CONTROL) -> Recipe:
    """Returns a2c on trees."""
    return on_trees(recipes.a2c(preset))


def boosted_awr(preset: Preset = CONTROL) -> Recipe:
    """Returns AWR on trees, on the batch that was gathered last."""
    return on_trees(advantage_weighted(preset))


METHOD = Method(
    paper="arXiv:2407.08250",
    recipe=gbrl,
    presets=(CONTROL, CONTINUOUS, TABLE),
    default_task="cartpole",
    family="policy gradient",
    base=recipes.ppo,
    variants={"node-wise": node_wise, "a2c": boosted_a2c, "awr": boosted_awr},
    departures=(
        "ppo; a2c and awr are variants, awr on the last batch and not on a replay buffer. No sac, whose "
        "critics need the action as an input of their trees; no SHAP values",
        "one ensemble for policy and value unless optimizer.shared is false; oblivious trees, or a condition for each "
        "node (node-wise), scored by standardised gradients: under cosine, larger gradients choose the tree",
        "a tree keeps the step size that it was added with; the authors' code applies the current one to all trees",
        "a tree without a condition is the batch's mean gradient (the authors' code: zero)",
        "no clipping of single rows' gradients, no control variates; advantages are whitened over the whole batch",
        "not measured: a perceptron on one-hot codes as a rival, an encoding that the paper's rival does not have",
    ),
)
