"""spo: each segment's credit is the difference of two Monte-Carlo values from branching rollouts; no critic.

    A_k = V(end of segment k) - V(its beginning),   V(prefix) = mean outcome of episodes that continue from it

Guo et al. 2025. Chain: whole answers, with probes at every cut for the values (the default). Tree: the samples form
the tree, a node's value is the mean of its children. Nearly certain decisions get no credit (probability mask).
"""

import itertools
from dataclasses import replace
from functools import partial

import torch

from assay import recipes
from assay.claims import Exact, Measured, Method, probes
from assay.core.recipe import Recipe, Stage
from assay.methods.spo.claims import accepted, in_chains, loss_by_hand, wrong_chains
from assay.methods.spo.credit import SegmentCredit, Uncertain, WithCredit
from assay.methods.spo.rollout import Chain, Tree
from assay.parts.credit.temporal import Whiten
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import Clip
from assay.recipes.defaults import CONTROL, LANGUAGE, TABLE, Defaults

EPISODES = probes.token_episodes(lambda tokens: tokens[0] * tokens[1] + 0.3 * tokens[1], num_tokens=2, horizon=2)
LOGITS_SA = torch.tensor([[0.4, -0.2], [1.0, 0.1], [-0.3, 0.5]], dtype=torch.float64)
PARENT_B, BRANCH_B = torch.tensor([0, 0, 1, 1, 2, 2]), torch.arange(1, 7)
LEVEL_BT = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1], [0, 1]])


def recipe(world: Defaults = LANGUAGE, rollout: Chain | Tree | None = None) -> Recipe:
    """Returns segment credit with a clipped ratio, from chains or, given Tree(), from trees."""
    base = recipes.grpo(world)
    assert base.rollout is not None
    stage = Stage("policy", ("actor",), (PolicyGradient(trust=Clip(0.2, 0.2)),), optimizer=world.optimizer)
    credit = (SegmentCredit(), Uncertain(0.9), WithCredit(), Whiten())
    chain = Chain(base.rollout.num_starts, group_size=8)
    return replace(base, name="spo", rollout=rollout or chain, credit=credit, stages=(stage,))


def distance_from_exact_gradient() -> torch.Tensor:
    """Returns the distance from the exact gradient over all trees of two levels with two children: level means times
    2.
    """
    logits = LOGITS_SA.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for a, b, *rest in itertools.product(range(2), repeat=6):
        picked = torch.tensor([[2 * a, 2 * b, *(2 * (a, a, b, b)[i] + token for i, token in enumerate(rest))]])
        record, logp = EPISODES.record(picked, LOGITS_SA), EPISODES.decision_logp(logits)[0, picked[0]] * LEVEL_BT
        edges = replace(record, mask=LEVEL_BT > 0, reward=record.reward * LEVEL_BT, parent=PARENT_B, branch=BRANCH_B)
        weight = SegmentCredit()(edges).column("advantage") * torch.tensor([1.0, 0.5])
        total = total + logp.sum().detach().exp() * (weight * logp).sum()
    (slope,) = torch.autograd.grad(total, logits)
    return (slope - probes.exact_table_gradient(EPISODES, LOGITS_SA)).norm()


METHOD = Method(
    paper="arXiv:2505.23564",
    recipe=recipe,
    worlds=(LANGUAGE, CONTROL, TABLE),
    family="credit assignment",
    base=recipes.grpo,
    aliases=("spo-chain",),
    variants={"spo-tree": partial(recipe, rollout=Tree(25, (4, 4), 3))},
    departures=(
        "a cut follows the c-th uncertain decision; the public code cuts before it, not a stopping time, hence biased",
        "c is an eighth of the task's limit, at least 2, and 4 probes instead of 5 and 9",
        "the start is always probed; whitened once over the batch",
        "no KL term; trees have no buffer of old edges, and levels are pooled as in the paper, not weighted",
    ),
    equivalent={"Chain.__call__: task.spec.horizon + 1 -> task.spec.horizon - 1": "an answer has at most half as many "
                "segments as decisions, so nodes still differ; random numbers follow their labels"},
    claims=(
        Exact("off-policy its gradient is the formula's: values of probes, uncertain decisions, whitened",
              lambda: probes.formula_gap(recipe(), in_chains(), loss_by_hand), at_most=1e-9),
        Exact("chains are cut after every c-th uncertain decision, with 4 probes at every cut",
              lambda: wrong_chains(recipe()), equals=0.0),
        Exact("segments too short for the task's limit are refused", lambda: accepted(recipe()), equals=0.0),
        Exact("trees: level means of credit have the exact gradient", distance_from_exact_gradient, equals=0.0),
        Measured("chains score higher than grpo on as many trained answers", "sorting-5", recipe(), recipes.grpo(),
                 seeds=5, minutes=8.0, steps=100, warmup=60),
        Measured("trees score higher than grpo on as many sampled tokens", "sorting-5",
                 recipe(rollout=Tree(25, (4, 4), 3)), recipes.grpo(), seeds=5, minutes=4.0, steps=100, warmup=60),
    ),
)  # fmt: skip
