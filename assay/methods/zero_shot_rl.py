"""zero-shot-rl: learns successor measures for all tasks at once, without rewards; a mean solves any reward.

    F(s, a, z) . B(s+) = density of the discounted states after (s, a) under pi_z(s) = argmax_a F(s, a, z) . z
    loss = sum_k mean_{i != j} (F_k . B(s'_j) - discount T)^2 / 2 - mean_i F_k . B(s'_i);  E[B B^T] -> 1
    VC-FB: + weight * (log sum_a exp F . z - F(s, a_data, z) . z);   at test z = E_data[r(s) B(s)], for a goal B(g)

Jeen et al. 2024 (and Jeen's thesis) on Touati & Ollivier 2021: small or homogeneous data lack actions, which FB then
overvalues for some z; CQL's penalty for all z at once lowers them. MC-FB applies it to F . B.

Axes: K heads, R decisions of the batch, N action samples, D numbers.
"""

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from assay.method import CONTINUOUS, CONTROL, CriticLoss, Experience, Loss, Method, Preset, Recipe, View
from assay.method import forward_backward, model_name
from assay.parts import MeasuredRows, OfPairs, OverTransitions


@dataclass(frozen=True)
class ConservativeValues(OverTransitions, CriticLoss):
    """weight * sum_k mean [log sum_a exp Q_k(s, a) - Q_k(s, a_data)],  Q_k = F_k(s, a, z) . z

    VC-FB (arXiv:2309.15178): CQL's penalty (arXiv:2006.04779) for every task z at once, against overvalued actions
    outside the data. Discrete actions are enumerated; of continuous ones it takes `num_samples` uniform ones, the
    policy's and the recorded one. Never below 0.
    """

    weight: float = 1.0
    num_samples: int = 8
    actor: str = model_name("actor")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the soft maximum over actions minus the recorded action's value."""
        rows = MeasuredRows(batch, view, self.actor)
        every = rows.model.forwards(rows.now, rows.samples(self.num_samples), rows.z)
        taken = rows.model.forward_of(rows.now, rows.action, rows.z)
        penalty = self.gaps(rows, every, taken).sum()
        metrics = {"penalty": (penalty.detach() / len(every), batch.now.num_decisions)}
        return Loss(self.weight * penalty, self.count(batch), metrics)

    def gaps(self, rows: MeasuredRows, every_KRND: Tensor, taken_KRD: Tensor) -> Tensor:
        """Returns the weighted differences of every decision, [K, R]."""
        values = (every_KRND * rows.z.unsqueeze(-2)).sum(-1)
        return (values.logsumexp(-1) - (taken_KRD * rows.z).sum(-1)) * rows.weight


@dataclass(frozen=True)
class ConservativeMeasures(OfPairs, ConservativeValues):
    """ConservativeValues with F_k(s, a, z) . B(s'_j) in place of F_k . z, mean over all j: MC-FB (arXiv:2309.15178)."""

    def gaps(self, rows: MeasuredRows, every_KRND: Tensor, taken_KRD: Tensor) -> Tensor:
        """Returns those of every decision and future state, [K, R, R]."""
        pairs = rows.weight.unsqueeze(1) * rows.weight / rows.weight.sum().clamp(min=1.0)
        return ((every_KRND @ rows.back.T).logsumexp(-2) - taken_KRD @ rows.back.T) * pairs


CAREFUL, ON_MEASURES = (ConservativeValues(1.0),), (ConservativeMeasures(1.0),)


def vc_fb(preset: Preset = CONTROL) -> Recipe:
    """Returns FB with conservative values."""
    return forward_backward(preset, CAREFUL)


METHOD = Method(
    paper="arXiv:2309.15178",
    recipe=vc_fb,
    presets=(CONTROL, CONTINUOUS),
    default_task="small-rooms",
    family="goal-conditioned",
    base=forward_backward,
    aliases=("vc-fb",),
    variants={"fb": forward_backward, "mc-fb": partial(forward_backward, conservative=ON_MEASURES)},
    departures=(
        "of the thesis, FB and its value- and measure-conservative kinds; no memory and no data-free control (PEARL)",
        "the penalty has a fixed weight; the authors' dual variable has a target (50) that fits their D and discount",
        "for continuous actions the penalty takes 8 uniform samples, the policy's and the recorded one, all at s",
        "B reads positions, the space of goals; claims are about goals of held-out mazes, not ExORL's rewards",
        "targets are the mean of two heads; under their minimum the mass of M fell to a fifth in a thousand updates",
        "D 32, discount 0.9, one learning rate, 64 units, inputs as waves, norm instead of element clipping",
    ),
)
