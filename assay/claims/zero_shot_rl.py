"""The losses of zero-shot-rl by hand, and what its tasks are. Axes: K heads, B rows, A actions, D = 32 numbers."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Measured, built, follows_schedule, probes
from assay.claims.measures import FIXED_LENGTH, SEEN, ByHand, backward, forward, on_sphere, waves
from assay.claims.probes import GOAL_BOX, GOAL_CHOICE, steps
from assay.method import CONTINUOUS, CONTROL, CriticLoss, Recipe, Spec, forward_backward
from assay.methods.zero_shot_rl import CAREFUL, ON_MEASURES, ConservativeValues, vc_fb
from assay.models import ForwardBackward
from assay.parts import MeasuredRows, MeasureLoss, Play


def chosen(model: Any, seen: Tensor, z: Tensor, is_discrete: bool, noise: Tensor | float = 0.0) -> Tensor:
    """Returns pi_z(s): the best of four, or the policy's continuous action with this noise."""
    if is_discrete:
        values = (forward(model, seen, z) * z.unsqueeze(1)).sum(-1)
        return torch.minimum(values[0], values[1]).argmax(-1)
    action = model.policy(torch.cat((waves(seen, *SEEN), z), -1)).tanh() + noise
    return steps.CENTRE + steps.HALF * action.clamp(-1.0, 1.0)


class Tasks(ByHand):
    """A batch with the tasks z that it is trained on, and the actions that zero-shot-rl compares."""

    def next_action(self) -> Tensor:
        noise = (0.2 * steps.normal(self.seen.uniform(1, 2, tag=5)[:, 0])).clamp(-0.3, 0.3)
        return chosen(self.model, self.after, self.z, self.is_discrete, noise)

    def candidates(self) -> Tensor | None:
        if self.is_discrete:
            return None
        uniform = self.seen.uniform(1, 8, 2, tag=4)[:, 0].double()
        own = chosen(self.model, self.now, self.z, is_discrete=False).detach()
        return torch.cat([steps.LOW + 2 * steps.HALF * uniform, own.unsqueeze(1), self.action.unsqueeze(1)], 1)


def measure_loss(hand: Tasks, on_measures: bool) -> Tensor:
    """FB's loss, the orthonormality, and the penalty of VC-FB or MC-FB, row by row."""
    here, back = hand.here.nonzero().flatten().tolist(), backward(hand.model, hand.arrived)
    mine = forward(hand.model, hand.now, hand.z, hand.action)
    every = forward(hand.model, hand.now, hand.z, hand.candidates())
    total = torch.zeros((), dtype=torch.float64)
    for i in here:
        if on_measures:
            values = every[:, i] @ back[here].T
            total = total + (values.exp().sum(1).log() - mine[:, i] @ back[here].T).sum() / len(here)
        else:
            total = total + ((every[:, i] @ hand.z[i]).exp().sum(1).log() - mine[:, i] @ hand.z[i]).sum()
    return hand.pairs(hand.next_action()) + total / len(here)


def policy_loss(hand: Tasks) -> Tensor:
    fixed = deepcopy(hand.model).requires_grad_(False)
    action = chosen(hand.model, hand.now, hand.z, is_discrete=False)
    values = (forward(fixed, hand.now, hand.z, action) * hand.z).sum(-1)
    return -torch.minimum(values[0], values[1])[hand.here].mean()


def gradient_gap(recipe: Recipe, spec: Spec, on_measures: bool = False) -> float:
    def formula(seen: probes.Seen) -> dict[str, Tensor]:
        hand = Tasks(seen, spec is probes.GOAL_CHOICE)
        losses = {"measure": measure_loss(hand, on_measures)}
        return losses if hand.is_discrete else {**losses, "policy": policy_loss(hand)}

    return probes.formula_gap(recipe, probes.goal_transitions(spec, num=16), formula, spec)


def acting_errors(recipe: Recipe, spec: Spec) -> float:
    """Returns how far acting is from pi_z of z = B(goal), and the task of a reward from E[r B] scaled to sqrt(D)."""
    model: Any = built(recipe, spec).models["actor"]
    data = probes.goal_transitions(spec)
    context = {name: column[:, 0] for name, column in data.context.items()}
    z = backward(model, context["goal"])
    wanted, reward = chosen(model, context["observation"], z, spec is probes.GOAL_CHOICE), data.reward[:, 0]
    task = on_sphere((reward.unsqueeze(1) * backward(model, context["achieved"])).mean(0))
    asked = {**context, "goal": context["goal"][:1].expand_as(context["goal"])}
    solved = model.solving(z[0]).act({**context, "goal": 0 * context["goal"]}, None)[0] - model.act(asked, None)[0]
    gaps = (model.act(context, None)[0] - wanted, model.infer(context["achieved"], reward) - task, solved)
    return sum(float(gap.abs().max().detach()) for gap in gaps)


POOR, FULL = Play(episodes=10, noise=0.0), Play(episodes=50, noise=0.5)
"""An expert without exploration, and five times as many episodes of half-random exploration."""


def more_goals(name: str, conservative: tuple[CriticLoss, ...], data: Play, margin: float = 0.0) -> Measured:
    """Returns the claim that FB with this penalty reaches more held-out goals than without, from these data."""
    ours, theirs = (forward_backward(CONTROL, terms, data) for terms in (conservative, ()))
    return Measured(name, "small-rooms", ours, theirs, margin=margin, seeds=5, minutes=2.5, steps=80,
                    about=About.HEADLINE)


CLAIMS = Claims(
    equivalent=FIXED_LENGTH,
    mutants=(
        Edit("the diagonal is in the square", MeasuredRows.others, " - torch.diag(self.weight)", ""),
        Edit("the target policy chooses", MeasureLoss.__call__, "rows.model.decide", "target.decide"),
        Edit("targets are the minimum of the heads", MeasureLoss.__call__, ".T).mean(0)", ".T).amin(0)"),
        Edit("the penalty raises", ConservativeValues.__call__, "Loss(self.weight", "Loss(-self.weight"),
        Edit("tasks are goals alone", ForwardBackward.tasks, "< 0.5", "< 2.0"),
        Edit("the first head alone acts", ForwardBackward.values, ".amin(0)", "[0]"),
    ),
    claims=(
        Exact("its gradient is the formula's, pair by pair", lambda: gradient_gap(vc_fb(), GOAL_CHOICE), at_most=1e-5),
        Exact("with continuous actions its gradient is the formula's, and so is the policy's",
              lambda: gradient_gap(vc_fb(CONTINUOUS), GOAL_BOX), at_most=1e-5),
        Exact("the gradient of MC-FB is the formula's", lambda: gradient_gap(
              forward_backward(CONTROL, ON_MEASURES), GOAL_CHOICE, on_measures=True), at_most=1e-5, of="fb"),
        Exact("it acts for z = B(goal), or for the z = E[r B] of a reward", lambda: acting_errors(vc_fb(), GOAL_CHOICE)
              + acting_errors(vc_fb(CONTINUOUS), GOAL_BOX), at_most=1e-5),
        follows_schedule("the target follows at rate 0.05", vc_fb, {"actor": 1}, {"target": ("actor", 0.05, 1)},
                         data=lambda: probes.goal_transitions(dtype=torch.float32), spec=GOAL_CHOICE,
                         of="target networks"),
        more_goals("from poor data, VC-FB reaches more held-out goals than FB", CAREFUL, POOR),
        more_goals("from poor data, MC-FB reaches more held-out goals than FB", ON_MEASURES, POOR),
        more_goals("from diverse data, VC-FB reaches not fewer held-out goals than FB", CAREFUL, FULL, margin=-0.05),
    ),
)
