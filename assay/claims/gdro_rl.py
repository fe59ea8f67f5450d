"""Weights of bins and numbers of answers by hand. Axes: B rows."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Loop, Measured, by_hand, probes, same_gradient
from assay.claims.testbeds.language.sparse import levels
from assay.method import BIGRAMS, Experience, Preset, Recipe, recipes, with_pool
from assay.methods.gdro_rl import EDGES, Allocated, Bins, WorstBins, allocated, allocation, by_surrogate, recipe
from assay.parts import Passes

RANGES = list(zip((0.0, *EDGES), (*EDGES, 2.0), strict=True))


def batch(time: int) -> Experience:
    """Returns 40 groups of eight: the first is always wrong, the next seven often, the others right but for one."""
    data, row = probes.sequences(num=320, group_size=8, seed=time), torch.arange(320)
    group = row // 8
    num = torch.where(group == 0, 0, torch.where(group < 8, (group * 7 + time * 3) % 9 * (group != 1 + time), 7))
    right = (row % 8 < num).unsqueeze(1) & (data.terminal | data.truncated)
    return data.with_columns(reward=torch.where(data.mask, right.double(), data.reward)).add({"start": group})


EARLIER = tuple(map(batch, range(3)))


def bins_by_hand(values: list[float], window: int = 50) -> list[int]:
    """Returns the bin before the visits and after each: the range of the mean, unless it left the last bin's by 0.03
    at most.
    """
    found = [0]
    for end in range(1, len(values) + 1):
        mean = float(np.mean(values[max(0, end - window) : end]))
        low, high = RANGES[found[-1]]
        stays = end > 1 and low - 0.03 <= mean <= high + 0.03
        own = next(place for place, (low, high) in enumerate(RANGES) if low <= mean < high)
        found.append(found[-1] if stays else own)
    return found


def weights_by_hand(data: Experience, eta: float) -> Tensor:
    """Returns the weight of each row after the earlier batches."""
    seen: dict[int, list[float]] = {group: [] for group in range(40)}
    score: dict[int, float] = {}
    weight = torch.ones(len(data), dtype=torch.float64)
    for one in (*EARLIER, data):
        outcome, rows = by_hand.outcome(one), by_hand.rows_of_groups(one)
        own = [bins_by_hand(seen[int(one.column("start")[mine[0]])])[-1] for mine in rows]
        present = sorted(set(own))
        tilted = {name: np.exp(eta * score.get(name, 0.0)) for name in present}
        q = {name: 0.99 * tilted[name] / sum(tilted.values()) + 0.01 / len(present) for name in present}
        mean = sum(q[name] * len(mine) for name, mine in zip(own, rows, strict=True)) / sum(map(len, rows))
        for name, mine in zip(own, rows, strict=True):
            weight[mine] = min(15.0, q[name] / mean)
        for name in present:
            wrong = np.concatenate([1.0 - outcome[m].numpy() for m, o in zip(rows, own, strict=True) if o == name])
            score[name] = 0.88 * score[name] + 0.12 * wrong.mean() if name in score else wrong.mean()
        for mine in rows:
            seen[int(one.column("start")[mine[0]])].append(float((outcome[mine] > 0.5).any()))
    return weight


def loss_by_hand(seen: probes.Seen) -> Tensor:
    return by_hand.grpo_loss(seen, by_hand.standardised(seen.experience) * weights_by_hand(seen.experience, 4.0))


def wrong_bins() -> float:
    """Returns how many of the bins of 60 prompts with success rates from 0 to 1 are wrong, after 1 to 90 visits each,
    with a window of 20.
    """
    part, wrong, draw = Bins(window=20), 0, np.random.default_rng(0)
    for rate in np.linspace(0.0, 1.0, 60):
        table: dict[str, Any] = {}
        values = (draw.random(90) < rate).astype(float).tolist()
        for value, own in zip(values, bins_by_hand(values, 20)[1:], strict=True):
            part.seen(table, 3, value)
            wrong += part.of(table, 3) != own
    return float(wrong)


def used_weights() -> float:
    """Returns how far the weights of three equal bins with S = 0, 1/2 and 1 and eta 0.65 are from the sheet of the
    paper's form.
    """
    data = probes.groups_with_right(4, 4, 4).add({"start": torch.arange(24) // 8, "advantage": torch.ones(24, 1)})
    table = {str(start): {"recent": [1.0], "bin": start} for start in range(3)}
    after = WorstBins(eta=0.65).apply(data, None, {"table": table, "losses": {"1": 0.5, "2": 1.0}})  # type: ignore[arg-type]
    return probes.distance(after.column("advantage")[::8, 0].tolist(), [0.7008, 0.9660, 1.3332])


def wrong_numbers() -> float:
    """Returns how far numbers of answers are from sqrt(v / mu) beyond their rounding, for ten random sets of variances
    with limits and without; infinite if the sum is another, or equal variances get numbers that differ by two.
    """
    draw, worst = np.random.default_rng(1), 0.0
    for least, most in ((1, 999), (2, 12)) * 5:
        variance = draw.random(16).round(1) / 4
        found, root = allocated(variance, 128, least, most), np.sqrt(np.maximum(variance, 1e-12))
        numbers = np.clip(np.geomspace(1e-2, 1e4, 100_000)[:, None] * root, least, most)  # a row for each price
        law = numbers[np.abs(numbers.sum(1) - 128).argmin()]
        if found.sum() != 128 or max(np.ptp(found[variance == one]) for one in variance) > 1:
            return np.inf
        worst = probes.worst(worst, float(np.abs(found - law).max()))
    return max(0.0, worst - 1.01) + float(np.abs(allocated(np.array([0.25, 0.09, 0.01]), 24, 1, 99) - [13, 8, 3]).sum())


def wrong_groups(ours: Recipe) -> float:
    """Returns how many groups of six steps have a wrong size, share a sample number with another group of their start,
    or hold several starts.
    """
    loop, wrong = Loop(ours, levels(easy=0.5), seed=0, num_steps=6), 0
    seen: dict[int, list[float]] = {}
    variance: dict[int, list[float]] = {}
    samples: set[tuple[int, int]] = set()
    for _ in range(6):
        rows = loop.step().fresh
        assert rows is not None
        assert rows.group is not None
        starts = list(dict.fromkeys(rows.column("start").tolist()))
        own = [bins_by_hand(seen.get(start, []))[-1] for start in starts]
        size = allocated(np.array([np.mean(variance.get(name, [0.25])[-50:]) for name in own]), 8 * len(own), 2, 24)
        shares = []
        for start, num in zip(starts, size.tolist(), strict=True):
            mine = rows.column("start") == start
            wrong += int(mine.sum()) != num or len(rows.group[mine].unique()) != 1
            shares.append(by_hand.outcome(rows.rows(mine)) > 0.5)
        pairs = set(zip(rows.column("start").tolist(), rows.column("sample").tolist(), strict=True))
        wrong += len(rows) - len(pairs) + len(pairs & samples)
        samples |= pairs
        labels = [int(rows.group[rows.column("start") == start][0]) for start in starts]
        for _, start, name, right in sorted(zip(labels, starts, own, shares, strict=True), key=lambda one: one[0]):
            p = float(right.double().mean())
            variance[name] = [*variance.get(name, []), p * (1 - p)]
            seen[start] = [*seen.get(start, []), float(right.any())]
    return float(wrong)


def solved(make: Callable[[Preset], Recipe], level: str, seed: int, steps: int = 60) -> float:
    """Returns the pass rate of one level after a run on a pool of which nine prompts in ten are easy."""
    task = levels(easy=0.9)
    loop = Loop(make(BIGRAMS), task, seed=seed, num_steps=60)
    for _ in range(steps):
        loop.step()
    return float(task.exact(loop.actor)[f"pass_rate/{level}"])


def side(make: Callable[[Preset], Recipe], level: str) -> Computed:
    """Returns a side of `solved`; small, with eight steps."""
    return Computed(partial(solved, make, level), small=partial(solved, make, level, steps=8))


def pooled(preset: Preset) -> Recipe:
    """Returns grpo on the same pool."""
    return with_pool(recipes.grpo(preset), "grpo-pool", Passes())


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is grpo's with every advantage times its bin's weight", recipe, loss_by_hand,
                      lambda: batch(3), earlier=EARLIER),
        Exact("a prompt leaves its bin once its mean passes the edge by more than 0.03", wrong_bins, equals=0.0),
        Exact("with S = 0, 1/2, 1 and eta 0.65 three bins weigh 0.7008, 0.9660 and 1.3332", used_weights, equals=0.0,
              tolerance=1e-3, illustrates=True),
        same_gradient("with the paper's loss on-policy its gradient is grpo's", by_surrogate, by_hand.grpo_loss,
                      lambda: batch(3), earlier=EARLIER, at_most=1e-6, of="a variant"),
        Exact("numbers of answers are sqrt(v / mu), rounded, with one price", wrong_numbers, equals=0.0,
              of="a variant"),
        Exact("answers are sampled in these numbers, each visit in a group of its own",
              lambda: wrong_groups(allocation(BIGRAMS)), equals=0.0, of="a variant"),
        Exact("prompts come back, and every visit is remembered", lambda: probes.wrong_table(recipe()), equals=0.0),
        Exact("each visit of a prompt has samples of its own", lambda: probes.wrong_visits(recipe(), levels()),
              equals=0.0),
        Measured("where nine of ten prompts are easy the rarest are solved more often than by grpo on the same pool",
                 "", side(recipe, "3-rare"), side(pooled, "3-rare"), seeds=5, looks=2, margin=0.1, minutes=6.0,
                 about=About.HEADLINE),
        Measured("with unequal numbers of answers, as many in all, hard prompts are solved more often",
                 "", side(allocation, "2-hard"), side(pooled, "2-hard"), seeds=5, looks=2, minutes=6.0,
                 about=About.COMPONENT),
    ),
    mutants=(
        Edit("the best bins weigh most", WorstBins.apply, "self.eta * (score", "-self.eta * (score"),
        Edit("losses of this batch count at once", WorstBins.apply, "score = np.array(",
             "self.observe(experience, present, of_bin, state)\n    score = np.array("),
        Edit("a sum of losses", WorstBins.observe, "loss[of_bin == one].mean()", "loss[of_bin == one].sum()"),
        Edit("more answers where all is known", Allocated.observe, "p * (1.0 - p)", "0.25 - p * (1.0 - p)"),
    ),
)
