"""a2pr: td3-bc that is pulled towards the better of the recorded action and one that a model of good actions makes.

    actor loss = -weight * Q_1(s, mu(s)) / mean |Q_1| + pull * m * mean over dimensions of (mu(s) - c)^2
    c = b if Q_1(s, b) >= Q_1(s, a) else a,   b = vae(s, mu(s)),   m = 1 if Q_1(s, b) >= V(s) or Q_1(s, a) > V(s) else 0
    vae loss = [Q_1(s, a) > V(s)] * mean (vae(s, a) - a)^2 + KL / 2,   V fitted to r + discount * least Q of all critics

Liu et al. 2024. Cloning poor actions holds the actor back. The autoencoder learns only actions with an advantage, makes
one near the actor's own, and where neither has an advantage nothing pulls.

Axes: B sequences, T decisions, A action dimensions, Z numbers of a latent.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from assay.method import CONTINUOUS, Box, Context, CriticLoss, CriticSpec, Experience, Loss, Method, Preset, Recipe
from assay.method import Spec, Stage, Target, View, model_name, normal_sample, td3_bc
from assay.models import ActionUnits, Critic, Perceptron, feature_size, features, need_box, perceptron
from assay.parts import Log, NearRecorded, OfState, OverTransitions, Td, smoothed_next


class Autoencoder(nn.Module):
    """a -> N(mean(s, a), deviation(s, a)) -> z -> centre + half_range * tanh(f(s, z)), with actions in half-ranges."""

    def __init__(self, num_inputs: int, space: Box, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.units, self.num_latent = ActionUnits(space), 2 * space.size
        size = num_inputs + space.size
        self.encoder = perceptron(size, 2 * self.num_latent, hidden, activation=nn.ReLU)
        self.decoder = perceptron(num_inputs + self.num_latent, space.size, hidden, activation=nn.ReLU)

    def encoded(self, context: Context, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and log-deviation [..., Z], the latter from -4 to 15 as in the authors' code."""
        mean, log_std = self.encoder(torch.cat((features(context), self.units(action)), -1)).chunk(2, -1)
        return mean, log_std.clamp(-4.0, 15.0)

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Returns the error of the action that is made again from the mean of its latent, [...]."""
        again, _, _ = self.remade(context, action, action.new_zeros(*action.shape[:-1], self.num_latent))
        return (again - self.units(action)).square().mean(-1)

    def remade(self, context: Context, action: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the action made again, in half-ranges, with mean and log-deviation of its latent."""
        mean, log_std = self.encoded(context, action)
        latent = mean + log_std.exp() * noise
        return self.decoder(torch.cat((features(context), latent), -1)).tanh(), mean, log_std


@dataclass(frozen=True)
class BehaviourVae(CriticSpec):
    """A variational autoencoder of actions in a state (arXiv:1812.02900), latents of two numbers for each dimension.

    Assumes continuous actions with bounds.
    """

    hidden: tuple[int, ...] = (64, 64)

    def build(self, spec: Spec) -> nn.Module:
        """Returns the module."""
        return Autoencoder(feature_size(spec), need_box(spec, "an autoencoder of actions"), self.hidden)


def latent_noise(batch: Experience, view: View, num: int, tag: int) -> Tensor:
    """Returns normal numbers [B, T, Z] for the decisions that have a next state."""
    return normal_sample(view.uniform((*batch.now.mask.shape, num), tag=tag))


@dataclass(frozen=True)
class Reconstruct(OverTransitions, CriticLoss):
    """loss = weight * [Q_1(s, a) > V(s)] * mean over dimensions of (vae(s, a) - a)^2 - mean over Z of
    (1 + 2 log std - mean^2 - std^2) / 4.

    The second term, half of the KL to N(0, I) over the number of latents, is not gated. Assumes critics Q and V that
    get no gradient. Degenerate: without an advantage anywhere the latents are drawn to N(0, I), and nothing else.
    """

    weight: float = 1.0
    vae: str = model_name("vae")
    q: str = model_name("q")
    value: str = model_name("value")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the gated errors and the divergence."""
        now, vae = batch.now, view.model(self.vae)
        with torch.no_grad():
            good = view.model(self.q).first(now.context, now.action) > view.model(self.value)(now.context)
        again, mean, log_std = vae.remade(now.context, now.action, latent_noise(batch, view, vae.num_latent, 7))
        error = (again - vae.units(now.action)).square().mean(-1)
        divergence = -0.25 * (1.0 + 2.0 * log_std - mean.square() - (2.0 * log_std).exp()).mean(-1)
        loss = (self.weight * good * error + divergence) * now.weight
        metrics = {"good_actions": ((good * now.weight).sum(), now.num_decisions)}
        return Loss(loss.sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class LowerOfAll(Target):
    """y = r + discount * the least of Q_i(s', b) and Q'_i(s', b),  b = clamp(mu'(s') + clamped noise).

    Degenerate: where critics and target critics are equal it is `SmoothedTwin`. Source: arXiv:2405.19909. Assumes a
    deterministic actor with a target network.
    """

    discount: float = 0.99
    noise: float = 0.2
    noise_limit: float = 0.5
    actor: str = model_name("actor_target")
    q: str = model_name("q")
    q_target: str = model_name("q_target")

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns targets [B, T]."""
        now, after = batch.now, batch.after
        action = smoothed_next(batch, view, self.actor, self.noise, self.noise_limit)
        values = [view.model(name)(after.context, action).amin(0) for name in (self.q, self.q_target)]
        return now.reward + self.discount * torch.minimum(*values) * ~now.terminal


@dataclass(frozen=True)
class NearBetter(NearRecorded):
    """coefficient * m * mean over dimensions of ((mu(s) - c) / half range)^2, c the better of the recorded action and
    the autoencoder's of mu(s), m whether one of them has an advantage (arXiv:2405.19909).

    c gets no gradient. Degenerate: where the autoencoder gives the recorded action it is `NearRecorded`, gated.
    """

    q: str = model_name("q")
    value: str = model_name("value")
    vae: str = model_name("vae")

    @torch.no_grad()
    def goal(self, batch: Experience, view: View, decided: Tensor) -> tuple[Tensor, Tensor | None]:
        now, vae, q = batch.now, view.model(self.vae), view.model(self.q)
        again, _, _ = vae.remade(now.context, decided, latent_noise(batch, view, vae.num_latent, 8))
        made = vae.units.of_task(again)
        worth, recorded = q.first(now.context, made), q.first(now.context, now.action)
        value = view.model(self.value)(now.context)
        better = torch.where((worth >= recorded).unsqueeze(-1), made, now.action)
        return better, ((worth >= value) | (recorded > value)).to(value.dtype)


def recipe(preset: Preset = CONTINUOUS, log: Log | None = None, weight: float = 2.5, pull: float = 1.0) -> Recipe:
    """Returns td3-bc with a state value, an autoencoder of good actions, and the gated pull."""
    base, given, step = td3_bc(preset, log, weight), preset.offline.body, preset.offline.optimizer
    critic, actor = base.stages
    hidden = given.hidden if isinstance(given, Perceptron) else (256, 256)
    body = base.critics["q"].body  # type: ignore[attr-defined]
    models = {**base.critics, "value": Critic(body), "vae": BehaviourVae(hidden)}
    vae = Stage("vae", trains=("vae",), critic=(Reconstruct(),), optimizer=step)
    actor = replace(actor, regularizers=(NearBetter(pull),))
    # Last, so that both gates read V as it was before its step.
    value = Stage("value", trains=("value",), critic=(Td(LowerOfAll(), of=OfState()),), optimizer=step)
    return replace(base, name="a2pr", critics=models, stages=(critic, vae, actor, value))


METHOD = Method(
    paper="arXiv:2405.19909",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="offline",
    base=td3_bc,
    departures=(
        "the pull's target has no gradient, as the paper writes it; in the authors' code the autoencoder's action "
        "follows the actor's through the encoder",
        "the pull has weight 1, as td3-bc's, so that both can be compared (0.5 on the authors' command line)",
        "the actor's step is before V's: the same numbers, since both gates read V before its step",
        "layers of 64 for all models, Adam 1e-3 (critics of four of 256, an autoencoder of 750, 3e-4 and 1e-3)",
        "the other departures of td3-bc",
    ),
)
