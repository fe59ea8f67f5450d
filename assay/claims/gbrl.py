"""Boosting by brute force. Axes: B sequences, T columns, R rows, F features, P outputs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.claims import About, Average, Claims, Edit, Engine, Exact, Measured, Placement, by_hand, prepared, probes
from assay.claims import steps
from assay.method import CONTINUOUS, CONTROL, Experience, Fit, Progress, recipes
from assay.methods.gbrl.base import AdvantageWeighted, advantage_weighted, boosted, gbrl, on_trees
from assay.methods.gbrl.models import TreeSum
from assay.methods.gbrl.optimizer import Boost, NodeWise, Oblivious, Shape, SquaredError
from assay.methods.gbrl.splits import conditions

def played() -> Experience:
    """Returns fragments whose observations are one code of four and two numbers."""
    data, draw = probes.fragments(num=16), torch.Generator().manual_seed(5)
    code = torch.randint(0, 4, (*data.mask.shape, 1), generator=draw).double()
    rest = torch.randn(*data.mask.shape, 2, generator=draw, dtype=torch.float64).float().double()
    # The policy without trees is uniform: recorded log-probabilities are around that.
    seen, logp = {"observation": torch.cat((code, rest), -1)}, 0.5 * data.logp - 0.9
    return replace(data, context=seen, logp=logp, reward=data.reward + 1.0)


def best_tree(seen: Tensor, decided: Tensor, gradient_RP: Tensor) -> list[Tensor]:
    """Returns the leaves of the best tree of four levels as masks of all columns [B, T], by trying all conditions on
    the decisions, whose gradients are given.
    """
    centred, rows = (gradient_RP - gradient_RP.mean(0)) / gradient_RP.std(0), seen[decided]
    free = [seen[..., 0] == value for value in rows[:, 0].unique()]
    free += [seen[..., f] > value for f in (1, 2) for value in rows[:, f].unique()[:-1]]
    nodes = [torch.ones_like(decided)]
    for _ in range(4):
        scores = []
        for one in free:
            sides = [(node & side)[decided] for node in nodes for side in (one, ~one)]
            scores.append(sum(float(centred[s].sum(0).square().sum()) / int(s.sum()) for s in sides if bool(s.any())))
        chosen = free.pop(max(range(len(free)), key=scores.__getitem__))
        nodes = [node & side for node in nodes for side in (chosen, ~chosen)]
    return nodes


def best_nodes(seen: Tensor, decided: Tensor, gradient_RP: Tensor) -> list[Tensor]:
    """Returns the leaves of the tree whose nodes have the best condition each, four levels, by trying all of them."""
    centred, rows = (gradient_RP - gradient_RP.mean(0)) / gradient_RP.std(0), seen[decided]
    free = [seen[..., 0] == value for value in rows[:, 0].unique()]
    free += [seen[..., f] > value for f in (1, 2) for value in rows[:, f].unique()[:-1]]

    def score(side: Tensor) -> float:
        own = centred[side[decided]]
        return float(own.sum(0).square().sum()) / len(own) if len(own) else 0.0

    nodes = [torch.ones_like(decided)]
    for _ in range(4):
        parts = list[Tensor]()
        for node in nodes:
            best = max(free, key=lambda one: score(node & one) + score(node & ~one))
            parts += [node & best, node & ~best] if score(node & best) + score(node & ~best) > score(node) else [node]
        nodes = parts
    return nodes


def ppo_gradients(data: Experience, outputs_BTP: Tensor) -> Tensor:
    """Returns the gradient [R, 5] of each decision's loss in its four logits and its value: ppo of CONTROL."""
    outputs = outputs_BTP.clone().requires_grad_()
    log_prob = outputs[..., :4].log_softmax(-1)
    logp = log_prob.gather(-1, data.action.unsqueeze(-1)).squeeze(-1)
    losses = by_hand.ppo(data, logp, -(log_prob.exp() * log_prob).sum(-1), outputs[..., 4], 0.98, 0.9)
    (slope,) = torch.autograd.grad(losses["policy"] + losses["value"], outputs)
    return data.num_decisions * slope[data.mask]


Leaves = Callable[[Tensor, Tensor, Tensor], list[Tensor]]


def boosting_gap(shape: Shape | None = None, leaves: Leaves = best_tree) -> float:
    """Returns the largest difference of policy and value after two updates from trees found by brute force.

    Conditions that separate the same decisions may separate other columns in two ways: these follow the trees.
    """
    recipe, data = on_trees(recipes.ppo(CONTROL), (0,), shape).at(Progress()), played()
    engine = Engine(recipe, probes.CHOICE_SPEC, 0, Placement())
    outputs, seen = torch.zeros(*data.mask.shape, 5, dtype=torch.float64), data.context["observation"]
    for _ in range(2):
        engine.update(recipe.stages[0], prepared(recipe, engine, data))
        gradient = ppo_gradients(data, outputs)
        for leaf in leaves(seen, data.mask, gradient):
            own = leaf[data.mask]
            if bool(own.any()):
                outputs[leaf] -= gradient[own].mean(0) * torch.tensor([0.2, 0.2, 0.2, 0.2, 0.1]).double()
        found: list[Any] = [engine.model(name).body.trees for name in ("actor", "value")]
        mine = torch.cat([trees.predict(seen.float()) for trees in found], -1).double()
        outputs = torch.where(data.mask.unsqueeze(-1), outputs, mine)
    return float((mine - outputs).abs().max())


def weighted_gap() -> float:
    """Returns the gap of AWR's gradient in the outputs to the formula: -min(exp A, 20) log pi, A any column;
    some of the weights are at the limit.
    """
    recipe, data = advantage_weighted(CONTROL), played()
    column = torch.linspace(-2.0, 3.2, data.mask.numel(), dtype=torch.float64).view_as(data.mask)

    def by_formula(seen: probes.Seen) -> dict[str, Tensor]:
        logits = steps.output(seen.models["actor"], seen.experience.context["observation"])
        logp = logits.log_softmax(-1).gather(-1, seen.experience.action.unsqueeze(-1)).squeeze(-1)
        weight = seen.experience.column("advantage").exp().clamp(max=20.0)
        return {"policy": -(weight * logp * seen.experience.mask).sum() / seen.experience.mask.sum()}

    alone = replace(recipe, credit=(), stages=recipe.stages[:1], critics={})
    return probes.formula_gap(alone, data.add({"advantage": column}), by_formula, probes.CHOICE_SPEC)


def grown(boost: Boost, inputs_RF: Tensor, gradient_RP: Tensor) -> TreeSum:
    """Returns a sum of one tree: the update for these gradients of a mean over rows."""
    trees = TreeSum(torch.zeros(inputs_RF.shape[1], dtype=torch.bool), gradient_RP.shape[1]).to(inputs_RF.dtype)
    boost.grow([Fit("actor", trees, inputs_RF, gradient_RP / len(inputs_RF))], {})
    return trees


def misplaced_thresholds() -> float:
    """Returns how many of 256 thresholds among 1,000 numbers are not at their quantile."""
    boost: Any = gbrl().stages[0].optimizer
    asked = conditions(torch.arange(1000.0).flip(0).unsqueeze(1), torch.tensor([False]), boost.tree.bins)
    wanted = torch.tensor([[float(k * 1000 // 257) for k in range(256)]])
    return float((asked.value != wanted).sum()) if asked.value.shape == wanted.shape else float("inf")


def deviation_gap() -> float:
    """Returns the difference of the first step of a Gaussian's log-deviation from Adam's: its rate against the sign."""
    recipe, data = gbrl(CONTINUOUS).at(Progress()), probes.transitions(dtype=torch.float32)
    engine: Any = Engine(recipe, probes.BOX_SPEC, 0, Placement())
    log_std = engine.model("actor").log_std
    loss = by_hand.ppo_of_torques(probes.Seen(data, engine.models, engine))["policy"]
    (slope,), before = torch.autograd.grad(loss, log_std), log_std.detach().clone()
    engine.update(recipe.stages[0], prepared(recipe, engine, data))
    return float((log_std.detach() - before + 3e-3 * slope.sign()).abs().max())


CODES = tuple(range(6))


CLAIMS = Claims(
    equivalent={"leaf_numbers: seen > value -> seen <= value": "leaves are numbered the other way round, in training "
                "and in use; sums of leaves round differently"},
    mutants=(
        Edit("leaves climb the loss", Boost._add, "-number(self.learning_rate)", "number(self.learning_rate)"),
        Edit("one step size for policy and value", Boost._add, "self.rates.get(fit.name, 1.0)", "1.0"),
        Edit("gradients of the mean, not of a row", Boost.grow, "num * fit.gradient", "fit.gradient"),
        Edit("each model has a tree of its own", boosted, "optimizer=boost", "optimizer=replace(boost, shared=False)"),
        Edit("conditions are chosen for the least separation", Oblivious.__call__, "scores_FK, -torch.inf",
             "-scores_FK, -torch.inf"),
        Edit("node-wise trees have the least separation", NodeWise.__call__, "scores_NC.flatten(1).max(1)",
             "scores_NC.flatten(1).min(1)"),
        Edit("awr without a limit", AdvantageWeighted.__call__, "self.limit)", "1e9)"),
        Edit("gradients as they are", SquaredError.scaled, "return centred / torch.where(spread > 0, spread, 1.0)",
             "return gradient_RP"),
    ),
    claims=(
        Exact("two updates add the trees that brute force finds for ppo's gradients", boosting_gap, at_most=1e-5),
        Exact("two updates add node-wise trees that brute force finds for ppo's gradients",
              lambda: boosting_gap(NodeWise(score=SquaredError()), best_nodes), at_most=1e-5, of="variant node-wise"),
        Exact("the gradient of awr is that of the formula", weighted_gap, at_most=1e-9, of="variant awr"),
        Exact("256 of many values, at equal-count quantiles, are thresholds", misplaced_thresholds, equals=0.0),
        Exact("a Gaussian's deviation is trained beside the trees", deviation_gap, at_most=1e-6,
              of="continuous-control"),
        Measured("on codes as numbers it beats ppo's perceptron", "exceptions", gbrl(codes=CODES), recipes.ppo(),
                 seeds=5, minutes=2.0, steps=20, about=About.HEADLINE),
        Measured("on a rule over six codes its area is above that of ppo's perceptron, by 0.05", "coded-rule", gbrl(),
                 recipes.ppo(), metric=Average("evaluation"), margin=0.05, seeds=5, looks=3, steps=10,
                 about=About.HEADLINE),
    ),
)
