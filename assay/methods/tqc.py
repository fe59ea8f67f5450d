"""tqc: sac whose critics give quantiles; the highest of all critics' quantiles together are left out of the target.

    y_k = r + discount * (1 - terminal) * (z_k - temperature * log pi(a'|s')),   a' ~ pi(.|s')
    z_k: the lowest N * M - drop * N of the quantiles of all N critics at (s', a')
    actor: temperature * log pi(a|s) - Z(s, a);   critic n: Huber's quantile loss, mean over i and k

Kuznetsov et al. 2020. N = 5 critics of M = 25 quantiles, two dropped for each; Z is the mean over all quantiles, none
dropped. How pessimistic the target is, is a dial of M * N steps and not the minimum of two critics.

Axes: B sequences, T decisions, N critics, M quantiles, K samples.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.method import CONTINUOUS, AssayError, Experience, Method, Preset, Recipe, Stage, Target, View, model_name
from assay.method import sac
from assay.models import ActionValue, Critic, Quantiles
from assay.parts import MatchEntropy, MaximizeSoftQ, QuantileHuber, Td, one_step_target, sampled_next


@dataclass(frozen=True)
class TruncatedQuantiles(Target):
    """y_k = r + discount * (z_k - temperature * log pi(a'|s')),  a' ~ pi, [K, B, T].

    z_k are the lowest of all critics' quantiles at (s', a'), without the highest `drop` for each critic. Degenerate:
    without dropping it is the mixture of all critics. Assumes an actor that can be sampled.
    """

    discount: float = 0.99
    drop: int = 2
    actor: str = model_name("actor")
    q: str = model_name("q_target")
    temperature: str = model_name("temperature")

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns the samples; raises AssayError if none is left."""
        action, logp = sampled_next(batch, view, self.actor)
        outputs = view.model(self.q).outputs(batch.after.context, action)
        num, each = len(outputs), outputs.shape[-1]
        if not 0 <= self.drop < each:
            what = f"TruncatedQuantiles.drop is {self.drop}, of the {each} quantiles of a critic"
            raise AssayError(f"{what}. Use 0 to {each - 1}, such as --set drop=2")
        pool = outputs.movedim(-1, 1).flatten(0, 1).sort(0).values
        soft = pool[: num * (each - self.drop)] - view.model(self.temperature)() * logp
        return one_step_target(batch.now, soft, self.discount)


def recipe(preset: Preset = CONTINUOUS, critics: int = 5, num: int = 25, drop: int = 2) -> Recipe:
    """Returns sac with `critics` critics of `num` quantiles, of which `drop` for each critic are left out."""
    base, step = sac(preset), preset.off_policy.optimizer
    q = Critic(base.critics["q"].body, ActionValue(critics, Quantiles(num)))  # type: ignore[attr-defined]
    loss = Td(TruncatedQuantiles(drop=drop), QuantileHuber(averaged=True))
    stages = (
        replace(base.stages[0], critic=(loss,)),
        Stage("actor", ("actor", "temperature"), (MaximizeSoftQ(averaged=True), MatchEntropy(-1.0)), optimizer=step),
    )
    return replace(base, name="tqc", critics={**base.critics, "q": q}, stages=stages)


METHOD = Method(
    paper="arXiv:2005.04269",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="value-based",
    base=sac,
    departures=(
        "critics have sac's layers on each preset (three of 512 in the paper)",
        "the losses of critics are summed, as in sac here; the authors take their mean, which Adam does not tell apart",
        "two dropped for each critic on every task; the paper chooses 0 (HalfCheetah) to 5 (Hopper) by task",
    ),
)
