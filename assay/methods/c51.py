"""c51: the return's distribution over 51 fixed atoms; its image under the target is projected back onto the atoms.

    loss = -sum_i m_i log p_i(s, a),   m_i = sum_j p'_j(s', a*) * max(0, 1 - |clip(y_j) - z_i| / width)
    y_j = r + discount * (1 - terminal) * z_j,   a* = argmax_a sum_j z_j p'_j(s', a);   acts on the mean

Bellemare et al. 2017. m is a distribution with the mean of the targets, as far as these lie among the atoms, so the
cross-entropy fits all of the return's distribution at once. The atoms are the centres of equal bins that reach as far
as the values of the task (`reach_of`), or where they are set.

Axes: B sequences, T decisions, A actions, M atoms.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import CONTROL, Aggregation, BinsOfTask, CriticLoss, Experience, Loss, Method, Preset, Recipe
from assay.method import View, dqn, model_name
from assay.models import Bins, Greedy, Policy, two_hot_labels
from assay.parts import ByImportance, DoubleQ, OfChoice, OverTransitions, Prioritised, TokenMean, one_step_target


def projected(atoms_M: Tensor, probability_M: Tensor, bins: Bins) -> Tensor:
    """Returns the distribution [..., M] over the centres of the bins that atoms [..., M] with these probabilities have
    after linear interpolation between the two nearest centres; atoms beyond the outermost ones are moved to them.
    """
    return (probability_M.unsqueeze(-1) * two_hot_labels(atoms_M, bins)).sum(-2)


@dataclass(frozen=True)
class CategoricalTd(OverTransitions, CriticLoss):
    """-sum_i m_i log p_i(s, a), m the projected distribution of r + discount * Z'(s', a*).

    `actor` chooses a*: the target network, as in the paper. Degenerate: after a terminal decision m is r between its
    two nearest atoms. Assumes a network of logits over bins, and returns within them.
    """

    discount: float = 0.99
    of: OfChoice = OfChoice()
    aggregate: Aggregation = TokenMean()
    actor: str = model_name("target")
    target: str = model_name("target")
    title: ClassVar[str] = "q"

    def labels(self, batch: Experience, view: View) -> Tensor:
        """Returns m [B, T, M]."""
        context, model = batch.after.context, view.model(self.target)
        best = view.model(self.actor).values(context).argmax(-1)
        place = best[..., None, None].expand(*best.shape, 1, model.bins.num)
        probability = model.outputs(context).gather(-2, place).squeeze(-2).softmax(-1)
        atoms = model.bins.centres(probability).expand_as(probability).movedim(-1, 0)
        return projected(one_step_target(batch.now, atoms, self.discount).movedim(0, -1), probability, model.bins)

    def __call__(self, batch: Experience, view: View) -> Loss:
        with torch.no_grad():
            label = self.labels(batch, view)
        now, critic = batch.now, view.model(self.of.model)
        outputs = self.of.outputs(critic, now)
        loss = -(label * outputs.log_softmax(-1)).sum(-1) * self.aggregate.weigh(now)
        value = (outputs.detach().softmax(-1) @ critic.bins.centres(outputs) * now.weight).sum()
        return Loss(loss.sum(), self.count(batch), {"q_mean": (value, now.num_decisions)})


def recipe(preset: Preset = CONTROL, num: int = 51) -> Recipe:
    """Returns dqn over `num` atoms."""
    base = dqn(preset)
    actor = Policy(preset.off_policy.body, Greedy(BinsOfTask(num=num)))
    return replace(base, name="c51", actor=actor, stages=(replace(base.stages[0], critic=(CategoricalTd(),)),))


def rainbow(preset: Preset = CONTROL, steps: int = 3) -> Recipe:
    """Returns c51 with what Rainbow (arXiv:1710.02298) adds to it in targets and replay: the trained network chooses
    a*, rewards of three steps, transitions by priority. Duelling and noisy networks are not in it.
    """
    base, given = recipe(preset), preset.choices.replay
    error: Any = {"of": OfChoice(), "target": DoubleQ(0.99), "exponent": 0.5, "correction": 0.4}
    source = Prioritised(given.capacity, given.batch, given.updates, given.warmup, steps, 0.99, **error)
    loss = CategoricalTd(aggregate=ByImportance(), actor="actor")
    return replace(base, source=source, stages=(replace(base.stages[0], critic=(loss,)),))


METHOD = Method(
    paper="arXiv:1707.06887",
    recipe=recipe,
    presets=(CONTROL,),
    default_task="cartpole",
    family="value-based",
    base=dqn,
    variants={"rainbow": rainbow},
    departures=(
        "the range of the atoms is the task's, found from uniform decisions, or set (--set bins.low, bins.high); the "
        "authors fix +-10, to which they clip Atari's rewards",
        "steps, buffer, copies, exploration and Adam's rate are dqn's on each preset (2.5e-4, epsilon 0.01 / 32)",
        "c51:rainbow has the errors of the mean as priorities (the cross-entropy), importance weights to the power of "
        "0.4 throughout (rising to 1), the networks of c51, and epsilon-greedy",
    ),
)
