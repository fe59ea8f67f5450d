"""gbrl: policy and value are sums of decision trees; every update fits one more to the output gradient.

    f <- f - step * tree(s),  leaf = mean over its rows of d loss / d f(s);  loss = ppo's (or a2c's, or any other)

Fuhrer, Tessler & Dalal 2024. Losses see outputs only, so they stay unchanged. Policy and value share a tree's
conditions, not its leaves and step sizes. Categorical features are tested for equality; the scale of a feature does
not matter.
"""

from assay.method import CONTINUOUS, CONTROL, TABLE, Method, recipes
from assay.methods.gbrl.base import gbrl

METHOD = Method(
    paper="arXiv:2407.08250",
    recipe=gbrl,
    presets=(CONTROL, CONTINUOUS, TABLE),
    default_task="cartpole",
    family="policy gradient",
    base=recipes.ppo,
    departures=(
        "ppo only, with one ensemble for policy and value: no a2c, awr or sac, no separate ensembles, no SHAP values",
        "oblivious trees only, scored by standardised gradients: under cosine, larger gradients choose the tree",
        "a tree keeps the step size that it was added with; the authors' code applies the current one to all trees",
        "a tree without a condition is the batch's mean gradient (the authors' code: zero)",
        "no clipping of single rows' gradients, no control variates; advantages are whitened over the whole batch",
        "not measured: a perceptron on one-hot codes as a rival, an encoding that the paper's rival does not have",
    ),
)
