"""Both phases of wsrl by hand, and what passes between them. Axes: B sequences, T decisions."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.claims import ALONE, About, Area, Claims, Dip, Edit, Exact, Measured, pendulum, probes, reads_dataset, steps
from assay.method import CONTINUOUS, Draw, Experience, Recipe, Scene, rlpd
from assay.methods.wsrl import LOG, from_scratch, offline, online, recipe, warmup_for
from assay.parts import RETURN, Calibrated, Log, OwnAction, Replay, returns_to_go
from assay.parts.targets.one_step import chosen
from assay.recipes.presets import GENERAL, MUJOCO


def online_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the losses of the online phase: targets of a random pair of critics without entropy, no penalty."""
    return {"critic": steps.rlpd_critics(seen, 0.95), "actor": steps.sac_actor(seen)}


def offline_by_hand(seen: probes.Seen, calibrated: bool = False) -> dict[str, Tensor]:
    """Returns the losses of the offline phase: CQL with weight 5, two proposals of each kind, ten critics; in Cal-QL
    the policy's proposals are worth at least the recorded return.
    """
    least = seen.experience.column(RETURN)[:, 0] if calibrated else None
    squares, penalty = steps.conservative(seen, 0.95, 2, least)
    return {"critic": steps.step_of(seen).mean(squares + 5.0 * penalty), "actor": steps.sac_actor(seen)}


def calibrated_gap() -> float:
    """Returns the gap of Cal-QL's gradients to the formulas; about half of the proposals are below the return."""
    data = probes.transitions(num=64)
    column = torch.linspace(-1.0, 1.0, 64, dtype=data.reward.dtype).unsqueeze(1).expand_as(data.reward)
    recipe, hand = offline(LOG, calibrated=True), partial(offline_by_hand, calibrated=True)
    return probes.formula_gap(recipe, data.add({RETURN: column}), hand, probes.BOX_SPEC)


def returns_gap() -> float:
    """Returns the largest gap of the returns of two episodes to sums by hand, in a step's batches."""
    source = offline(Log(2), calibrated=True).source
    columns, gap = Log(2).columns(pendulum()), 0.0
    reward = columns["reward"][:, 0].double()
    length = len(reward) // 2
    for batch in probes.drawn(source, ALONE.given(task=pendulum())):
        for paid, found in zip(batch.reward[:8, 0], batch.column(RETURN)[:8, 0], strict=True):
            start = int((reward == paid.double()).nonzero()[0])
            left = length - start % length
            by_hand = (0.95 ** torch.arange(left).double() * reward[start : start + left]).sum()
            gap = probes.worst(gap, float((by_hand - found).abs()))
    return gap


def schedule_gap() -> float:
    """Returns the largest deviation of both phases' schedules from the stated ones."""
    data, targets = probes.transitions(dtype=torch.float32), {"q_target": ("q", 0.02, 1)}
    online = {"actor": 4, "q": 1, "temperature": 4}
    gap = probes.schedule_gap(recipe(), data, probes.BOX_SPEC, online, targets)
    first = recipe().before[0].recipe
    return probes.worst(gap, probes.schedule_gap(first, data, probes.BOX_SPEC, dict.fromkeys(online, 1), targets))


def batches(recipe: Recipe, decisions: int = 8, most: int = 120) -> tuple[int, Tensor]:
    """Returns (transitions stored at the first batch, that batch's rewards); without a task no dataset can be read."""
    source: Any = recipe.source
    state = source.init(ALONE)
    first = torch.tensor([True, False]).expand(decisions, 2)
    for step in range(most):
        reward = torch.arange(decisions).unsqueeze(1) + 100.0 * step * first
        seen, no = {"observation": torch.zeros(decisions, 2, 3)}, torch.zeros_like(first)
        fresh = Experience(seen, torch.zeros(decisions, 2, 1), first, 0 * reward, reward, no, no)
        for batch in source(Scene(draw=Draw(0, (step,)), fresh=fresh), state):
            return (step + 1) * decisions, batch.reward
    return 0, torch.zeros(1)


WARMUPS = ((CONTINUOUS, 200), (GENERAL, 1_000), (MUJOCO, 5_000))


CLAIMS = Claims(
    mutants=(
        Edit("one critic instead of a pair", rlpd, "subset=2", "subset=1"),
        Edit("all critics in the target", rlpd, "subset=2", "subset=0"),
        Edit("the first critic instead of a pair", chosen, "(uniform_BTM * num).long()", "(uniform_BTM * 0).long()"),
        Edit("the trained critics in the target", OwnAction.__call__, "model(self.q)", 'model("q")'),
        Edit("the actor moves at every update", rlpd, "optimizer=OPTIMIZER, every=4", "optimizer=OPTIMIZER"),
        Edit("updates during the warm-up", Replay.__call__, "max(self.warmup, 1)", "1"),
        Edit("offline data in every batch", online, "warmup, retain)", "warmup, 0.5)"),
        Edit("the offline phase without penalty", offline, "Conservative(weight", "Conservative(0.0"),
        Edit("Cal-QL bounds no proposals", Calibrated.__call__, "batch.now.column(RETURN)", "None"),
        Edit("returns go on after an end", returns_to_go, "0.0 if is_last else discount * onward",
             "discount * onward"),
        Edit("a new actor online", recipe, "// 2, HANDED)", '// 2, {"q": "q", "q_target": "q_target"})'),
    ),
    claims=(
        Exact("its online gradients are those of the formulas",
              lambda: probes.formula_gap(recipe(), probes.transitions(num=64), online_by_hand, probes.BOX_SPEC),
              at_most=1e-6),
        Exact("its offline gradients are those of the formulas",
              lambda: probes.formula_gap(offline(LOG), probes.transitions(num=64), offline_by_hand, probes.BOX_SPEC),
              at_most=1e-6),
        Exact("the gradients of Cal-QL are those of the formulas", calibrated_gap, at_most=1e-6),
        Exact("the returns of Cal-QL are those of the recorded episodes", returns_gap, at_most=1e-3),
        Exact("critics take four steps for each of the actor, targets follow at rate 0.02", schedule_gap, at_most=1e-6),
        Exact("the online phase starts with the offline phase's models", lambda: probes.hand_off_gap(
              recipe(), ("actor", "q", "q_target", "temperature"), probes.BOX_SPEC), equals=0.0),
        reads_dataset(lambda: recipe(log=Log(3)).before[0].recipe, of="phases",
                      name="the offline phase's batches are rows of the dataset"),
        Exact("the first update sees 200 decisions of the policy and nothing else", lambda: batches(recipe())[0],
              equals=200.0),
        Exact("the warm-up is a hundredth of sac's decisions, 200 to 5,000",
              lambda: probes.worst(*(abs(warmup_for(preset) - told) for preset, told in WARMUPS)), equals=0.0,
              of="presets"),
        Exact("another log changes no batch",
              lambda: (batches(recipe())[1] - batches(recipe(log=Log(9, 0.3)))[1]).abs().max(), equals=0.0,
              of="sources"),
        Measured("less is lost at the onset than without a warm-up", "pendulum", recipe(warmup=800),
                 recipe(warmup=64), metric=Dip(),
                 seeds=5, minutes=15.0, steps=140, looks=4, about=About.MECHANISM),
        Measured("it scores more over the run than RLPD, which keeps the data and has no first phase", "pendulum",
                 recipe(), from_scratch(), metric=Area(), seeds=5, minutes=15.0, steps=140, looks=4,
                 about=About.HEADLINE),
    ),
)
