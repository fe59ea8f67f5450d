"""gbrl: policy and value are sums of decision trees; every update fits one more to the output gradient.

    f <- f - step * tree(s),  leaf = mean over its rows of d loss / d f(s);  loss = ppo's (or a2c's, or any other)

Fuhrer, Tessler & Dalal 2024. Losses see outputs only, so they stay unchanged. Policy and value share a tree's
conditions, not its leaves and step sizes. Categorical features are tested for equality; the scale of a feature does
not matter.
"""

import torch

from assay import recipes
from assay.claims.claim import Exact, Measured, Method
from assay.methods.gbrl.base import gbrl
from assay.methods.gbrl.claims import best_split_error, grown, leaf_means_one_by_one
from assay.methods.gbrl.optimizer import Boost, Cosine, Oblivious, SquaredError
from assay.recipes.defaults import CONTINUOUS, CONTROL, TABLE

CODES = tuple(range(6))
ROWS = torch.sin(torch.arange(1.0, 61.0).double() ** 2).view(20, 3)
POLICY, VALUE = torch.cos(7.0 * ROWS), ROWS[:, :1].square()


def error_of_a_deep_tree() -> torch.Tensor:
    """Returns the error at depth 5, where each of six distinct inputs (five thresholds) has a leaf of its own."""
    inputs, gradient = ROWS[:6, :1], POLICY[:6]
    tree = grown(Boost(1.0, tree=Oblivious(depth=5)), inputs, {"actor": gradient})["actor"]
    return (tree(inputs) + gradient).abs().max()


def error_above_brute_force() -> torch.Tensor:
    """Returns the squared error left by a tree of depth 1, minus the least that any threshold leaves."""
    tree = grown(Boost(1.0, tree=Oblivious(depth=1, score=Cosine())), ROWS, {"actor": POLICY})["actor"]
    return (tree(ROWS) + POLICY).square().sum() - best_split_error(ROWS, POLICY)


def shared_minus_separate() -> torch.Tensor:
    """Compares trees of a shared structure with mean gradients of each model alone under the same conditions."""
    boost = Boost(1.0, rates={"value": 0.1}, tree=Oblivious(depth=2, score=SquaredError()))
    trees = grown(boost, ROWS, {"actor": POLICY, "value": VALUE})
    actor = trees["actor"](ROWS) + leaf_means_one_by_one(trees["actor"], ROWS, POLICY)
    value = trees["value"](ROWS) + 0.1 * leaf_means_one_by_one(trees["value"], ROWS, VALUE)
    return torch.cat([actor, value], 1).abs().max()


def projection() -> torch.Tensor:
    """Returns <G, h> - |h|^2 of the leaf means h: to first order the loss never rises."""
    step = -grown(Boost(1.0), ROWS, {"actor": POLICY})["actor"](ROWS)
    return ((POLICY * step).sum() - step.square().sum()).abs()


def change_with_scale() -> torch.Tensor:
    """Returns the change of the tree under increasing transformations of the features."""
    trees = [grown(Boost(1.0), rows, {"actor": POLICY})["actor"](rows) for rows in (ROWS, 100.0 * ROWS**3 + 5.0)]
    return (trees[0] - trees[1]).abs().max()


METHOD = Method(
    paper="arXiv:2407.08250",
    recipe=gbrl,
    worlds=(CONTROL, CONTINUOUS, TABLE),
    default_task="cartpole",
    family="policy gradient",
    base=recipes.ppo,
    departures=(
        "oblivious trees only, scored by standardised gradients: under cosine, larger gradients choose the tree",
        "a tree keeps the step size that it was added with; the authors' code applies the current one to all trees",
        "a tree without a condition is the batch's mean gradient (the authors' code: zero)",
        "no clipping of single rows' gradients, no control variates; advantages are whitened over the whole batch",
    ),
    claims=(
        Exact("a deep tree is minus the gradient at distinct inputs", error_of_a_deep_tree, equals=0.0),
        Exact("the first condition is the best of all", error_above_brute_force, equals=0.0, tolerance=1e-9),
        Exact("sharing is separate leaves under the same conditions", shared_minus_separate, equals=0.0),
        Exact("a step is a projection of the gradient", projection, equals=0.0, tolerance=1e-9),
        Exact("increasing functions of features change nothing", change_with_scale, equals=0.0),
        Measured("on codes as numbers it beats ppo's perceptron", "exceptions", gbrl(codes=CODES), recipes.ppo(),
                 seeds=5, minutes=2.0, steps=20),
        Measured("on codes as zeros and ones it beats ppo's perceptron", "exceptions-one-hot", gbrl(), recipes.ppo(),
                 seeds=5, minutes=4.0, steps=20),
        Measured("on CartPole it is not 25 worse than ppo's perceptron", "cartpole", gbrl(), recipes.ppo(),
                 margin=-25.0, seeds=5, minutes=3.0, steps=40),
    ),
)  # fmt: skip
