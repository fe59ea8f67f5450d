"""Exact claims of hybridflow: rows over workers, plans on a virtual clock, slices of weights."""

from fractions import Fraction

import numpy as np
import torch

from assay.claims import About, Claims, Edit, Exact, Expect, Measured, by_hand, probes, same_gradient
from assay.claims.systems.graphs import PERFECT, POOR
from assay.engine import batch_shards as shards
from assay.engine.batch_shards import cut, tree_sum
from assay.method import concatenate
from assay.methods.hybridflow import recipe
from assay.runs import placements
from assay.runs.placements import Mesh, best, by_model, meshes, ppo_graph
from assay.runs.placements import together as all_together

FOUR = meshes(4)


# ---------------------------------------------------------------------------------------------------- rows
def rows_changed() -> int:
    """Returns how many actions differ after rows were cut over workers and joined, for batches of 1 to 9 rows."""
    wrong = 0
    for num in range(1, 10):
        batch = probes.sequences(num=num)
        for workers in (1, 2, 4, 8):
            parts = [part for part in cut(batch, frozenset(), workers) if part is not None]
            wrong += int((concatenate(parts).action != batch.action).sum())
    return wrong


def loss_of_two_workers() -> float:
    """Returns the token mean of two workers' losses, each (sum, count), added as a tree."""
    parts = [[torch.tensor([0.2 * 3, 3.0], dtype=torch.float64)], [torch.tensor([0.4 * 5, 5.0], dtype=torch.float64)]]
    total, count = tree_sum(parts)[0].tolist()
    return float(total / count)


# ---------------------------------------------------------------------------------------------------- plans
def together() -> float:
    """Returns the time of an update with all models on all four devices."""
    return POOR.seconds(all_together(POOR, 4))


def sum_of_calls() -> float:
    """Returns the same by hand."""
    return 30 / 4**0.3 + 3 * 12 / 4**0.6 + 2 * 30 / 4**0.8


def placed(actor: Mesh, critic: Mesh, reference: Mesh, reward: Mesh) -> float:
    """Returns the time of an update with these meshes of the models."""
    models = {"actor": actor, "critic": critic, "reference": reference, "reward": reward}
    return POOR.seconds({call.name: models[call.model] for call in POOR.calls})


def split() -> float:
    """Returns the time with actor and reference on one half, critic and reward on the other."""
    left, right = frozenset({0, 1}), frozenset({2, 3})
    return placed(left, right, left, right)


def split_by_hand() -> float:
    """Returns the same by hand: generation, the half with two scores, both trainings at once."""
    return 30 / 2**0.3 + 2 * 12 / 2**0.6 + 30 / 2**0.8


def alone() -> float:
    """Returns the time with one device for each model."""
    return placed(*(frozenset({device}) for device in range(4)))


def best_by_model() -> float:
    """Returns the shortest time of all plans by model."""
    return best(POOR, by_model(POOR, FOUR))[0]


def gain_if_perfect() -> float:
    """Returns by how much the best plan is shorter than all together where calls scale perfectly."""
    return PERFECT.seconds(all_together(PERFECT, 4)) - best(PERFECT, by_model(PERFECT, FOUR))[0]


def best_over_together(seed: int) -> float:
    """Returns the time of the best plan over that of all together, with work and scaling drawn from a seed."""
    draw = np.random.default_rng(seed)
    generate, infer, train = ((draw.uniform(10, 40), draw.uniform(0.2, 0.9)) for _ in range(3))
    graph = ppo_graph(generate, infer, train, 0.0)
    return best(graph, by_model(graph, FOUR))[0] / graph.seconds(all_together(graph, 4))


# ---------------------------------------------------------------------------------------------------- slices
def slices(train: int, generate: int, *, strided: bool) -> list[tuple[set[int], set[int]]]:
    """Returns, for each rank, the finest slices of the weights that it holds for training and needs for generating.

    Slice k of `train` is rank k's. For generating, the weights are in `generate` slices: strided, neighbours share one,
    so that a rank's own slice lies in it; else ranks 0 to generate - 1 have one each, and so on.
    """
    wide = train // generate
    needs = [rank // wide if strided else rank % generate for rank in range(train)]
    return [({rank}, set(range(need * wide, (need + 1) * wide))) for rank, need in enumerate(needs)]


def received(train: int, generate: int, strided: bool) -> float:
    """Returns the share of the weights that a rank receives, on average over the ranks."""
    counts = [len(needs - holds) for holds, needs in slices(train, generate, strided=strided)]
    return float(Fraction(sum(counts), train * train))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are ppo's", recipe, by_hand.ppo_of_tokens, probes.fragments),
        Exact("rows cut over 1, 2, 4 and 8 workers and joined are the rows", rows_changed, equals=0.0),
        Exact("losses of 3 and 5 tokens, 0.2 and 0.4, give 0.325 on any number of workers, not the mean of means, 0.3",
              loss_of_two_workers, equals=0.325, tolerance=1e-12, of="sharding"),
        Exact("all models together take the sum of all calls", lambda: together() - sum_of_calls(),
              equals=0.0),
        Exact("models on two halves take 30/2^0.3 + 2 x 12/2^0.6 + 30/2^0.8", lambda: split() - split_by_hand(),
              equals=0.0),
        Exact("four models alone take 30 + 12 + 30", alone, equals=72.0, of="placements"),
        Exact("the best of 2,401 plans trains actor and critic side by side and takes 52.7256", best_by_model,
              equals=52.7256, tolerance=1e-4),
        Exact("where calls scale perfectly and scores are free, no plan beats all together", gain_if_perfect,
              equals=0.0, of="placements"),
        Exact("from 4 to 2 slices, strided, a rank receives a quarter of the weights", lambda: received(4, 2, True),
              equals=0.25, illustrates=True),
        Exact("from 4 to 2 slices, in consecutive groups, a rank receives three eighths of the weights on average",
              lambda: received(4, 2, False), equals=0.375, illustrates=True),
        Measured("with random costs the best plan by model is at least 2 % shorter than all together", "",
                 best_over_together, 1.0, margin=0.02, expect=Expect.BELOW, seeds=10, minutes=0.5,
                 about=About.MECHANISM),
    ),
    mutants=(
        Edit("devices are not held", placements.hold, "free.update(dict.fromkeys(mesh, end))", "None"),
        Edit("only the first device of a mesh is waited for", placements.hold, "for device in mesh",
             "for device in sorted(mesh)[:1]"),
        Edit("calls do not wait for their inputs", placements.Graph.seconds, "default=0.0)", "default=0.0) * 0"),
        Edit("time does not depend on the devices", placements.PlannedCall.seconds, "len(mesh)", "1"),
        Edit("the last plan instead of the best", placements.best, "min((", "max(("),
        Edit("models share a mesh", placements.by_model, "placed[call.model]", "chosen[0]"),
        Edit("a row is lost between workers", shards.cut, "unit * shards // (int(unit.max()) + 1)",
             "unit * shards // int(unit.max())"),
    ),
)
