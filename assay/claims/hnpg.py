"""Claims of hnpg: its losses by hand, what stands beside fresh rows, the policy before a step, measured claims.

Axes: B rows, A actions.
"""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims import ALONE, About, Claims, Edit, Exact, Measured, probes, same_gradient, steps
from assay.method import Draw, Experience, Origin, recipes
from assay.methods.hnpg import BATCHES, Beside, ExpectedNext, Last, MirrorStep, off_policy, pairs, recipe
from assay.parts import Episodes, Log, RewardToGo, from_columns
from assay.tasks.control.lock import combination_lock

SPEC = probes.CHOICE_SPEC
SMALL = Log(episodes=20, noise=0.3)


def rows(logged: bool = True) -> Experience:
    """Returns transitions with returns, three in eight of a log."""
    data = probes.transitions(SPEC, num=64)
    given = torch.randn(64, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    data = data.add({"return": given, "advantage": given})
    return data.add({"logged": torch.arange(64) % 8 < 3}) if logged else data


def losses_by_hand(seen: probes.Seen, weight: float = 1.0, step_size: float = 10.0) -> dict[str, Tensor]:
    """Returns the losses; without the column `logged` all rows are fresh."""
    step, models, out = steps.step_of(seen), seen.models, steps.output
    extra = seen.experience.extra
    old = extra.get("logged", torch.zeros(len(step.here), dtype=torch.bool)) & step.here
    new = step.here & ~old
    taken = out(models["q"], step.now).gather(1, step.action.unsqueeze(1)).squeeze(1)
    onward = (out(models["actor"], step.after).softmax(1) * out(models["q_target"], step.after)).sum(1)
    by_return = (taken - extra["return"][:, 0]).square()[new].mean() / 2
    by_step = (taken - step.target(0.98, onward)).square()[old].sum() / max(int(old.sum()), 1) / 2
    values, logits = out(models["q"], step.now).detach(), out(models["actor"], step.now)
    solution = (out(models["old"], step.now).log_softmax(1) + step_size * values).log_softmax(1).detach()
    chance = logits.softmax(1)
    # KL to the solution is the loss times the step size, up to a constant.
    apart = (chance * (logits.log_softmax(1) - solution)).sum(1) / step_size
    return {"q": weight * by_return + by_step, "actor": step.mean(apart)}


def hybrid_dqn_by_hand(seen: probes.Seen) -> Tensor:
    return steps.step_of(seen).mean(steps.double_q(seen, 0.99)[1])


def middle(num_fresh: int, num_logged: int) -> float:
    """Returns what the critic of one state and action goes to, for returns of 1 and targets of 0."""
    one = probes.transitions(SPEC, num=1).rows(torch.zeros(num_fresh + num_logged, dtype=torch.int64))
    is_logged = torch.arange(len(one)) >= num_fresh
    ends = torch.tensor([True, False]).expand(len(one), 2)
    data = replace(one, terminal=ends, reward=torch.zeros_like(one.reward))
    data = data.add({"return": torch.ones_like(one.reward), "advantage": one.reward, "logged": is_logged})
    made = recipe()
    engine = probes.formulas.built(made, SPEC)
    q: Any = engine.models["q"]
    chosen = int(one.action[0, 0])
    value = q.values(one.context)[0, 0, chosen].detach()
    slope = list(engine.gradient(made.stages[0], data).values())[-1][chosen]  # of the last bias
    return float(value - slope / 2.0)


def keys(batch: Experience) -> list[bytes]:
    """Returns each row's observations, action and reward, as bytes."""
    seen = batch.context["observation"].flatten(1)
    numbers = torch.cat((seen, batch.action[:, :1].float(), batch.reward[:, :1]), 1).float()
    return [row.numpy().tobytes() for row in numbers]


def beside_gap(log: Log | None = SMALL) -> float:
    """Returns how often rows of a step's batches are not what they should be: each decision of twelve right episodes
    three times, with its return, and as many others of the dataset.
    """
    task = combination_lock(4, 3)
    fresh, made = RewardToGo(0.98)(task.demonstrate(np.arange(12), 0)), recipe(log=log, passes=3)
    scene = ALONE.given(task=task, fresh=fresh, draw=Draw(1))
    batches = list(made.source(scene, made.source.init(scene)))
    known = set() if log is None else set(keys(from_columns(log.columns(task))))
    wrong, counts, drawn = float(len(batches) != 3 * BATCHES), Counter[bytes](), Counter[bytes]()
    for batch in batches:
        is_logged = batch.extra.get("logged", torch.zeros(len(batch), dtype=torch.bool))
        wrong += float((is_logged.sum() != (0 if log is None else 12)) + (len(batch) != 12 * (1 + bool(log))))
        mine, others = batch.rows(~is_logged), batch.rows(is_logged)
        told = torch.zeros(len(batch)) if batch.source is None else batch.source
        wrong += float((told != int(Origin.DATASET) * is_logged).sum() + (batch.mask[:, 1] | ~batch.mask[:, 0]).sum())
        step = mine.context["observation"].double() @ torch.from_numpy(task.dynamics.mixing)  # type: ignore[union-attr]
        right = 0.98 ** (3.0 - step[:, 0, 3:8].argmax(1))
        wrong += float((~((mine.column("return")[:, 0] - right).abs() <= 1e-6)).sum())
        wrong += float((step[:, 1, 3:8].argmax(1) != step[:, 0, 3:8].argmax(1) + 1).sum())
        counts.update(keys(mine))
        drawn.update(keys(others))
    wrong += sum(row not in known for row in drawn) + (log is not None and len(drawn) < 40)
    return wrong + float(len(counts) != 48) + sum(abs(num - 3) for num in counts.values())


def answers(num: int) -> float:
    """Returns, as digits, which of eight updates the gate lets through."""
    gate = Last(num)
    state = gate.init()
    return float("".join(str(int(gate({}, state))) for _ in range(8)))


def old_gap() -> float:
    """Returns the distance of the old policy from the policy after each of two steps, infinite if that did not move."""
    task, made = combination_lock(3, 3), replace(recipe(log=SMALL, passes=2), rollout=Episodes(8, 1))
    loop, gap, moved = probes.trained(made, task, 0, 0), 0.0, 0.0
    for _ in range(2):
        before = loop.engine.flats["actor"].values.clone()
        loop.step()
        flats = loop.engine.flats
        moved = probes.worst(moved, float((flats["actor"].values - before).abs().max()))
        gap = probes.worst(gap, float((flats["old"].values - flats["actor"].values).abs().max()))
    return gap if moved else float("inf")


def cut_episodes() -> float:
    """Returns how many rows of a gathered step are not one whole episode of the lock."""
    made = replace(recipe(log=SMALL, passes=1), stages=())
    fresh = probes.trained(made, combination_lock(20, 3), 0, 0).step().fresh
    assert fresh is not None
    return float((fresh.mask.sum(1) != 20).sum() + (~fresh.terminal[:, 19]).sum() + (len(fresh) != 64))


def share_of_log() -> float:
    """Returns the share of the dataset in the batches of the variant that learns by TD alone."""
    source: Any = off_policy(log=SMALL).source
    return float(source.kept) if source.log.logs == (SMALL,) else float("inf")


HIDDEN = "combination-lock:hidden=5"
CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand, rows, SPEC),
        same_gradient("another weight of returns and another step have the formulas' gradients",
                      partial(recipe, weight=0.3, step_size=3.0), partial(losses_by_hand, weight=0.3, step_size=3.0),
                      rows, SPEC),
        same_gradient("without a log its gradients are those of returns and of the step at fresh states",
                      partial(recipe, log=None), losses_by_hand, partial(rows, logged=False), SPEC, of="a variant"),
        same_gradient("its off-policy variant has the gradient of double Q-learning", off_policy, hybrid_dqn_by_hand,
                      partial(probes.transitions, SPEC, num=64), SPEC, of="a variant"),
        Exact("half of the off-policy variant's batches are the log's", share_of_log, equals=0.5, of="a variant"),
        Exact("three fresh returns of 1 and 29 logged targets of 0 have their middle as value, whatever their number",
              partial(middle, 3, 29), equals=0.5, tolerance=1e-9, illustrates=True),
        Exact("each fresh decision comes three times, with its return and as many rows of the log", beside_gap,
              equals=0.0),
        Exact("without a log there are fresh rows alone", partial(beside_gap, None), equals=0.0, of="a variant"),
        Exact("a step gathers 64 whole episodes", cut_episodes, equals=0.0),
        Exact("the gate opens at the last of three updates", partial(answers, 3), equals=100100.0),
        Exact("when a step begins the old policy is the policy", old_gap, equals=0.0, tolerance=0.0),
        # What would refute it: that TD alone finds the way too where a step hides what was lost.
        Measured("where a step hides what was lost it ends 0.3 above Hy-Q, which learns by TD alone", HIDDEN,
                 recipe(), off_policy(), margin=0.3, seeds=5, minutes=8, steps=60, about=About.HEADLINE),
        Measured("where a step hides what was lost it ends 0.3 above itself without returns", HIDDEN, recipe(),
                 recipe(weight=0.0), margin=0.3, seeds=5, minutes=8, steps=60, about=About.MECHANISM),
        Measured("it ends 0.3 above ppo, which is not paid at the end of the lock", HIDDEN, recipe(),
                 recipes.ppo(), margin=0.3, seeds=5, minutes=8, steps=60, about=About.COMPONENT),
    ),
    equivalent={"critics.value as in ppo": "a critic of states that no part reads and no stage trains"},
    mutants=(
        Edit("the log's rows are fitted to returns too", recipe, "Among(column=LOGGED, holds=False)",
             "Among(column=\"none\", holds=False)"),
        Edit("fresh rows bootstrap", recipe, "Among(column=LOGGED))", "Among(column=LOGGED, holds=False))"),
        Edit("the best action's value, not the policy's", ExpectedNext.__call__,
             "(chance * view.model(self.q).values(batch.after.context)).sum(-1)",
             "view.model(self.q).values(batch.after.context).amax(-1)"),
        Edit("towards the worst action", MirrorStep.__call__, "self.step_size - worth", "self.step_size + worth"),
        Edit("no old policy", MirrorStep.__call__, "reverse_kl(logp, before)", "reverse_kl(logp, 0.0 * before)"),
        Edit("values by the target network", recipe, "MirrorStep(step_size)", "MirrorStep(step_size, q=\"q_target\")"),
        Edit("the log by itself", Beside.__call__, "concatenate([own, ", "concatenate([own.rows(slice(0, 0)), "),
        Edit("the first of the updates", Last.__call__, "== 0)", "== 1)"),
        Edit("the context before", pairs, "one[row, column + 1]", "one[row, column]"),
    ),
)
