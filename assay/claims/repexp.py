"""Leverage, sketches and choices by hand. Axes: B rows, T decisions, D sketch."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Expect, Measured, addition, by_hand, probes
from assay.claims.testbeds.language.enumerable import SIGNS
from assay.claims.testbeds.language.places import key_decisions
from assay.claims.testbeds.language.sparse import many_ways
from assay.method import Experience, Need, Score, text
from assay.methods.repexp import Elliptical, Sketch, coreset, leverage, projection, recipe
from assay.models import Policy, Transformer


POOL = 256


def sketched(lower: float = 0.0) -> Experience:
    """Returns `probes.verified` with random sketches, also where the mask is false."""
    data = probes.verified()
    draw = torch.Generator().manual_seed(3)
    return data.add({"sketch": torch.randn(*data.mask.shape, 4, generator=draw, dtype=torch.float64) - lower})


def loss_by_hand(seen: probes.Seen) -> Tensor:
    """Returns the clipped loss over all decisions, with 0.01 times the leverage in the outcomes of solved groups."""
    data = seen.experience
    rows = zip(data.column("sketch"), data.mask, strict=True)
    phi = torch.stack([one[mask].mean(0) if mask.any() else one[0] * 0.0 for one, mask in rows])
    paid = by_hand.outcome(data)
    assert data.group is not None
    for label in data.group.unique():
        own = (data.group == label) & data.mask.any(1)
        if (paid[own] > 0.5).any():
            centred = phi[own] - phi[own].mean(0)
            sigma = 0.01 * torch.eye(4).double() + centred.t() @ centred
            paid[own] += 0.01 * torch.stack([one @ sigma.inverse() @ one for one in centred])
    advantage = by_hand.in_groups(paid, data, lambda one: (one - one.mean()) / (one.std() + 1e-4))
    gain = by_hand.clipped(by_hand.ratio(seen), advantage.unsqueeze(1), 0.2, 0.2)
    return -by_hand.mean_of_decisions(gain, data)


def sketch_error(sketch: Sketch) -> float:
    """Returns how far the sketch is from the projected states of prefixes, each scored alone with its next token."""
    task = addition(1)
    actor = probes.small_policy(task).requires_grad_(False)
    rows = probes.completed(task, ["12", "7", "123"], [0, 1, 2], faults=[1])
    found = sketch(rows, lambda experience, function: function(actor, experience))
    error = float(found[~rows.mask].abs().max())
    for row, column in rows.mask.nonzero().tolist():
        prefix = [*rows.action[row, : column + 1].tolist()]
        one = text.written([prefix], [[5]], torch.zeros(1, dtype=torch.int64), task.tokenizer.vocabulary.pad)
        state = actor.score(one, frozenset({Need.LOGP, Need.HIDDEN})).hidden[0, column + 1]
        error = probes.worst(
            error, float((found[row, column] - state.double() @ projection(len(state), sketch.dims)).abs().max())
        )
    return error


def projection_error() -> float:
    """Returns how far 12,000 entries are from 0 and both roots of 3/4, and the shares of these from 1/6."""
    entry, root = projection(3000, 4), 0.75**0.5
    shares = [(entry - value).abs() < 1e-9 for value in (-root, root, 0.0)]
    return probes.distance([float(one.double().mean()) for one in shares], (1 / 6, 1 / 6, 2 / 3))


def other_choices() -> float:
    """Returns how many of 20 choices differ from those by the inverse of the whole sum, on 30 random rows."""
    phi = torch.randn(30, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 2.0
    centred, sigma, wrong, chosen = phi - phi.mean(0), 0.01 * torch.eye(5).double(), 0, set[int]()
    for _, choice in zip(range(20), coreset(phi), strict=False):
        value = [-1.0 if i in chosen else float(one @ sigma.inverse() @ one) for i, one in enumerate(centred)]
        wrong += choice != int(np.argmax(value))
        chosen.add(choice)
        sigma = sigma + torch.outer(centred[choice], centred[choice])
    return float(wrong)


def verified_until_right(seed: int, is_random: bool = False, prompts: int = 16) -> float:
    """Returns how many of 256 answers of the uniform start are verified until one is right, mean over the prompts of
    many-ways: in the order of `coreset`, or, once each, in random order, (different + 1) / (different right + 1). If
    none is right, all different ones are verified in vain.
    """
    task, rng, found = many_ways(), np.random.default_rng(seed), []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        start = Policy(Transformer()).build(task.spec).requires_grad_(False)
    for prompt in range(prompts):
        said = [f"{number:02d}" for number in rng.integers(0, 100, POOL)]
        outcomes = task.verify([""] * POOL, said, [task.items.item(prompt, 0)] * POOL)
        right = [outcome == Score(1.0) for outcome in outcomes]
        different = {one for one, is_right in zip(said, right, strict=True) if is_right}
        if is_random or not any(right):
            found.append((len(set(said)) + 1) / (len(different) + 1))
            continue
        rows = probes.completed(task, said, [prompt] * POOL, cut=range(POOL))
        sketch = Sketch(128)(rows, lambda experience, function: function(start, experience))
        order = coreset(sketch.sum(1) / rows.mask.sum(1, keepdim=True))
        found.append(next(place for place, row in enumerate(order, 1) if right[row]))
    return float(np.mean(found))


def until_right(is_random: bool = False) -> Computed:
    """Returns the side of `verified_until_right`."""
    ours = partial(verified_until_right, is_random=is_random)
    return Computed(ours, small=partial(ours, prompts=2))


WAYS, USUAL = SIGNS[:10], 0.9
"""Ways to answer, each a first letter, and the share of a pool that takes the usual one."""


def verified_until_rare(seed: int, is_random: bool = False, prompts: int = 16) -> float:
    """Returns how many of the different answers of a pool are verified until one is right, mean over prompts, where the
    prior is bad: 0.9 of 256 answers take one way, which is wrong, the right one is among nine others, and three digits
    after it mean nothing. In the order of `coreset` on the states of a random transformer, or in random order, (n + 1)
    / (right + 1). If none is right, all are verified.
    """
    task, rng, found = key_decisions(length=4), np.random.default_rng(seed), []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        start = Policy(Transformer()).build(task.spec).requires_grad_(False)
    for prompt in range(prompts):
        usual, right_way = rng.choice(len(WAYS), 2, replace=False)
        chance = np.where(np.arange(len(WAYS)) == usual, USUAL, (1.0 - USUAL) / (len(WAYS) - 1))
        ways, digits = rng.choice(len(WAYS), POOL, p=chance), rng.integers(0, 1000, POOL)
        said = list(dict.fromkeys(f"{WAYS[way]}{number:03d}" for way, number in zip(ways, digits, strict=True)))
        right = [one[0] == WAYS[right_way] for one in said]
        if is_random or not any(right):
            found.append((len(said) + 1) / (sum(right) + 1) if any(right) else len(said))
            continue
        rows = probes.completed(task, said, [prompt] * len(said), cut=range(len(said)))
        sketch = Sketch(32)(rows, lambda experience, function: function(start, experience))
        order = coreset(sketch.sum(1) / rows.mask.sum(1, keepdim=True))
        found.append(next(place for place, row in enumerate(order, 1) if right[row]))
    return float(np.mean(found))


def until_rare(is_random: bool = False) -> Computed:
    """Returns the side of `verified_until_rare`."""
    ours = partial(verified_until_rare, is_random=is_random)
    return Computed(ours, small=partial(ours, prompts=2))


CLAIMS = Claims(
    claims=(
        Exact("its gradient is the formula's", lambda: probes.formula_gap(recipe(), sketched(),
              loss_by_hand), at_most=1e-9),
        Exact("its gradient is the formula's also where most states are negative",
              lambda: probes.formula_gap(recipe(), sketched(lower=0.5), loss_by_hand), at_most=1e-9),
        Exact("the sketch is of the states after each token, the last one included",
              lambda: sketch_error(Sketch()), at_most=1e-5),
        Exact("projections have entries +-sqrt(3 / D), 1/6 of them each", projection_error, at_most=0.02),
        Exact("rank-one updates choose as inverses of the whole sum do", other_choices, equals=0.0),
        Measured("where most answers take one wrong way, fewer of the different ones are verified until the first "
                 "right one than in random order", "", until_rare(), until_rare(is_random=True), expect=Expect.BELOW,
                 minutes=3.0, about=About.HEADLINE),
        Measured("fewer answers are verified until the first right one of 256 than of the different ones in random "
                 "order", "", until_right(), until_right(is_random=True),
                 expect=Expect.BELOW, seeds=10, minutes=2.0, about=About.COMPONENT),
    ),
    mutants=(
        Edit("unsolved groups too", Elliptical.apply, "torch.where(solved,", "torch.where(solved | True,"),
        Edit("not centred", leverage, "phi_BD - mean", "phi_BD"),
        Edit("states before the tokens", Sketch.__call__, "states_after(actor, rows)",
             "states_after(actor, rows).roll(1, 1)"),
        Edit("what was chosen does not count", coreset, "inverse = inverse - torch.outer", "_ = inverse - torch.outer"),
        Edit("the best covered first", coreset, "value, -torch.inf).argmax()", "-value, -torch.inf).argmax()"),
    ),
)
