"""What a constraint makes of an advantage, by hand, and the cost of an episode that spans fragments.

Axes: B sequences, T decisions.
"""

from dataclasses import replace

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Expect, Final, Measured, by_hand, cartpole, probes, refuses
from assay.claims.testbeds.control.cost_corridor import within_budget
from assay.method import Draw, Experience, Recipe, Scene, random, recipes, safe_ppo
from assay.methods.safe_rl_review import lagrange, projected
from assay.parts import Fragments
from assay.parts.constraints.cost import ended_costs
from assay.tasks.control.hazards import hazards


def costly(seed: int, scale: float = 3.0, ends: bool = True, lower: float = 0.0) -> Experience:
    """Returns fragments with costs, also where nothing is decided, and the totals of the episodes that end in them."""
    data, draw = probes.fragments(seed, lower=lower), torch.Generator().manual_seed(seed + 9)
    cost, total = (scale * torch.rand(*data.mask.shape, 1, generator=draw, dtype=torch.float64) for _ in range(2))
    data = replace(data, cost=cost, terminal=data.terminal & ends, truncated=data.truncated & ends)
    return data.add({"episode_cost": total})


EARLIER = (costly(1, scale=0.5), costly(2), costly(3, ends=False))
"""Within the limit, beyond it, and one in which no episode ends."""


def levels() -> list[float]:
    """Returns J_C of the earlier batches in which an episode ended."""
    over = [(one.terminal | one.truncated) & one.mask for one in EARLIER]
    return [float(one.column("episode_cost")[at].mean()) for one, at in zip(EARLIER, over, strict=True) if at.any()]


def pid_price() -> float:
    """Returns the multiplier 0.05 e + 0.005 I + 0.05 D after the earlier batches."""
    first, second = levels()
    total = max(0.0, max(0.0, first - 1.0) + second - 1.0)
    return max(0.0, 0.05 * (second - 1.0) + 0.005 * total + 0.05 * max(0.0, second - first))


def ascent_price() -> float:
    """Returns the multiplier after one gradient step of size 0.05 for each of them."""
    first, second = levels()
    return max(0.0, max(0.0, 0.05 * (first - 1.0)) + 0.05 * (second - 1.0))


def centred(value: Tensor, data: Experience) -> Tensor:
    """Returns the value minus its mean over the decisions."""
    return value - value[data.mask].mean()


def ppo_losses(seen: probes.Seen, advantage: Tensor) -> dict[str, Tensor]:
    """Returns ppo's policy loss with a merged advantage, and the critics' losses."""
    data, losses = seen.experience, {}
    gain = by_hand.clipped(by_hand.ratio(seen), advantage, low=0.2, high=0.2)
    losses["policy"] = -by_hand.mean_of_decisions(gain + 0.003 * by_hand.entropy(seen), data)
    assert data.cost is not None
    for stage, reward in (("value", data.reward), ("cost value", data.cost[..., 0])):
        if stage.replace(" ", "_") in seen.models:
            value = seen.value(stage.replace(" ", "_"))
            target = by_hand.gae(replace(data, reward=reward), value, 0.98, 0.9) + value.detach()
            losses[stage] = by_hand.mean_of_decisions((value - target).square() / 2, data)
    return losses


def plain(seen: probes.Seen) -> Tensor:
    """Returns ppo's own advantage."""
    return by_hand.whitened(by_hand.gae(seen.experience, seen.value(), 0.98, 0.9), seen.experience)


def pid_losses(seen: probes.Seen) -> dict[str, Tensor]:
    data, price = seen.experience, pid_price()
    assert data.cost is not None
    priced = by_hand.gae(replace(data, reward=data.cost[..., 0]), seen.value("cost_value"), 0.98, 0.9)
    return ppo_losses(seen, (plain(seen) - price * centred(priced, data)) / (1.0 + price))


def to_go(data: Experience) -> Tensor:
    """Returns the discounted cost to go, centred."""
    assert data.cost is not None
    reward = data.cost[..., 0]
    return centred(by_hand.gae(replace(data, reward=reward), torch.zeros_like(reward), 0.99, 1.0), data)


def lagrange_losses(seen: probes.Seen) -> dict[str, Tensor]:
    price = ascent_price()
    return ppo_losses(seen, (plain(seen) - price * to_go(seen.experience)) / (1.0 + price))


def projected_losses(seen: probes.Seen) -> dict[str, Tensor]:
    """Moves the advantage along the cost to where it falls by J_C - limit, if it does not fall as much by itself."""
    data, own = seen.experience, plain(seen)
    cost = to_go(data)
    missing = (own * cost)[data.mask].mean() + levels()[1] - 1.0
    return ppo_losses(seen, own - max(0.0, float(missing / cost[data.mask].square().mean())) * cost)


def gap(ours: Recipe, losses: probes.formulas.Formula, lower: float = 0.0) -> float:
    """Returns the distance of the recipe's gradients from a formula's, after the earlier batches."""
    return probes.formula_gap(ours, costly(0, lower=lower), losses, earlier=EARLIER)


def ended_wrongly() -> float:
    """Returns how far the costs of ended episodes are from sums by hand: since the previous end of a row, and over all
    rows of an episode.
    """
    data, per_row = replace(costly(0), extra={}), []
    assert data.cost is not None
    over = data.mask & (data.terminal | data.truncated)
    for cost, mask, ends in zip(data.cost[..., 0], data.mask, over, strict=True):
        before = 0
        for end in ends.nonzero().flatten().tolist():
            per_row.append(cost[before : end + 1][mask[before : end + 1]].sum())
            before = end + 1
    total = torch.stack([cost[mask].sum() for cost, mask in zip(data.cost[..., 0], data.mask, strict=True)])
    label = torch.arange(len(data)) // 2 % 3
    per_episode = torch.stack([total[label == one].sum() for one in range(3) if over[label == one].any()])
    found = ended_costs(data, 0), ended_costs(replace(data, episode=label), 0)
    return float(probes.worst(probes.distance(found[0], torch.stack(per_row)), probes.distance(found[1], per_episode)))


def carried_wrongly(ours: Recipe) -> float:
    """Returns how far the costs of the episodes that end in 20 fragments of 9 steps are from sums over 180 steps."""
    task, rollout = hazards(), ours.rollout
    assert isinstance(rollout, Fragments)
    with random.seeded(0):
        scene = Scene(task, actor=ours.actor.build(task.spec), draw=Draw(5))
    short, long = (replace(rollout, num_envs=8, steps=steps) for steps in (9, 180))
    state, whole, expected = short.init(scene), long(scene, long.init(scene)), []
    assert whole.cost is not None
    for row in range(8):
        running = 0.0
        for column in range(180):
            running += float(whole.cost[row, column, 0])
            if whole.terminal[row, column] | whole.truncated[row, column]:
                expected.append(running)
                running = 0.0
    found = [cost for _ in range(20) for cost in ended_costs(short(scene, state), 0).tolist()]
    return probes.distance(sorted(found), sorted(expected))


CLAIMS = Claims(
    claims=(
        Exact("its gradients are those of ppo with a PID-priced cost",
              lambda: gap(safe_ppo(), pid_losses), at_most=1e-9),
        Exact("its gradients are those of ppo with a PID-priced cost also where most advantages are negative",
              lambda: gap(safe_ppo(), pid_losses, lower=1.0), at_most=1e-9),
        Exact("its gradients are those of ppo with a cost priced by gradient ascent on the dual",
              lambda: gap(lagrange(), lagrange_losses), at_most=1e-9, of="lagrange"),
        Exact("its gradients are those of ppo with the nearest advantage along which the cost falls as required",
              lambda: gap(projected(), projected_losses), at_most=1e-9, of="projection"),
        Exact("an episode costs the same in fragments of any length", lambda: carried_wrongly(safe_ppo()),
              equals=0.0, of="bounded-length"),
        Exact("the cost of an episode in one row or several is the sum by hand", ended_wrongly, equals=0.0),
        refuses("a task without costs is refused", safe_ppo, cartpole, hazards, of=""),
        Measured(
            "in cost-corridor its held-out return less what is beyond the budget is above ppo's, by 1",
            "cost-corridor", safe_ppo().set("Multiplier.limit", 10.0), recipes.ppo(), metric=within_budget(10.0),
            margin=1.0, seeds=5, looks=3, steps=20, about=About.HEADLINE,
        ),
        Measured(
            "in cost-corridor its held-out cost ends within a tenth of the budget of 10",
            "cost-corridor", safe_ppo().set("Multiplier.limit", 10.0), 10.0, metric=Final("evaluation_cost"),
            expect=Expect.WITHIN, margin=1.0, seeds=5, looks=3, steps=20, about=About.MECHANISM,
        ),
    ),
    mutants=(
        Edit("all cost of the batch over its ends", ended_costs, "carried is not None", "False"),
    ),
)
