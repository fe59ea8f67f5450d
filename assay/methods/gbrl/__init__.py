"""gbrl: policy and value are sums of decision trees; every update fits one more to the output gradient.

    f <- f - step * tree(s),  leaf = mean over its rows of d loss / d f(s);  loss = ppo's (or a2c's, or any other)

Fuhrer, Tessler & Dalal 2024. Losses see outputs only, so they stay unchanged. Policy and value share a tree's
conditions, not its leaves and step sizes. Categorical features are tested for equality; the scale of a feature does
not matter.
"""

from assay import recipes
from assay.claims import Average, Edit, Exact, Measured, Method
from assay.methods.gbrl.base import boosted, gbrl
from assay.methods.gbrl.claims import boosting_gap, change_with_scale, deviation_gap, misplaced_thresholds
from assay.methods.gbrl.optimizer import Boost, Oblivious, SquaredError
from assay.recipes.defaults import CONTINUOUS, CONTROL, TABLE

CODES = tuple(range(6))


METHOD = Method(
    paper="arXiv:2407.08250",
    recipe=gbrl,
    worlds=(CONTROL, CONTINUOUS, TABLE),
    default_task="cartpole",
    family="policy gradient",
    base=recipes.ppo,
    equivalent={"leaf_numbers: seen > value -> seen <= value": "leaves are numbered the other way round, in training "
                "and in use; sums of leaves round differently"},
    mutants=(
        Edit("leaves climb the loss", Boost._add, "-number(self.learning_rate)", "number(self.learning_rate)"),
        Edit("one step size for policy and value", Boost._add, "self.rates.get(fit.name, 1.0)", "1.0"),
        Edit("gradients of the mean, not of a row", Boost.grow, "num * fit.gradient", "fit.gradient"),
        Edit("each model has a tree of its own", boosted, "optimizer=boost", "optimizer=replace(boost, shared=False)"),
        Edit("conditions are chosen for the least separation", Oblivious.__call__, "scores_FK, -torch.inf",
             "-scores_FK, -torch.inf"),
        Edit("gradients as they are", SquaredError.scaled, "return centred / torch.where(spread > 0, spread, 1.0)",
             "return gradient_RP"),
    ),
    departures=(
        "oblivious trees only, scored by standardised gradients: under cosine, larger gradients choose the tree",
        "a tree keeps the step size that it was added with; the authors' code applies the current one to all trees",
        "a tree without a condition is the batch's mean gradient (the authors' code: zero)",
        "no clipping of single rows' gradients, no control variates; advantages are whitened over the whole batch",
    ),
    claims=(
        Exact("two updates add the trees that brute force finds for ppo's gradients", boosting_gap, at_most=1e-5),
        Exact("of many values, 256 at equal-count quantiles are thresholds", misplaced_thresholds, equals=0.0),
        Exact("increasing functions of features change nothing", change_with_scale, equals=0.0),
        Exact("a Gaussian's deviation is trained beside the trees", deviation_gap, at_most=1e-6),
        Measured("on codes as numbers it beats ppo's perceptron", "exceptions", gbrl(codes=CODES), recipes.ppo(),
                 seeds=5, minutes=2.0, steps=20),
        Measured("a rule over six codes: its area is above that of ppo's perceptron, by 0.05", "coded-rule", gbrl(),
                 recipes.ppo(), metric=Average("evaluation"), margin=0.05, seeds=5, looks=3, steps=10),
    ),
)  # fmt: skip
