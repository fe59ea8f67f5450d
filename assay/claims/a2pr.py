"""Claims of a2pr: its losses by hand, its gates on four rows, limits, measured claims, mutants. Axes: B, T, A."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.claims import DELAYED, About, Claims, Edit, Exact, Measured, follows_schedule, probes, reads_dataset
from assay.claims import same_gradient, steps
from assay.method import CONTINUOUS, Recipe, td3_bc
from assay.methods.a2pr import Autoencoder, LowerOfAll, NearBetter, Reconstruct, recipe
from assay.parts import Log

DATA = partial(probes.transitions, num=1024)


def again(vae: Any, seen: Tensor, action: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the action made again in half-ranges, mean and log-deviation of the latent."""
    mean, log_std = vae.encoder(torch.cat((seen, (action - steps.CENTRE) / steps.HALF), -1)).split(4, -1)
    latent = mean + log_std.clamp(-4.0, 15.0).exp() * noise
    return vae.decoder(torch.cat((seen, latent), -1)).tanh(), mean, log_std.clamp(-4.0, 15.0)


def losses_by_hand(seen: probes.Seen, pull: float = 1.0) -> dict[str, Tensor]:
    step, models, q = steps.step_of(seen), seen.models, steps.output
    b = steps.smoothed(seen)
    recorded, decided = q(models["q"], step.now, step.action), steps.bounded(models["actor"], step.now)
    onward = q(models["q_target"], step.after, b).amin(0)
    both = torch.minimum(onward, q(models["q"], step.after, b).amin(0))
    value = q(models["value"], step.now)
    # the autoencoder, on actions with an advantage
    noise = steps.normal(seen.uniform(1, 4, tag=7)[:, 0])
    found, mean, log_std = again(models["vae"], step.now, step.action, noise)
    gate = (recorded[0] > value).double().detach()
    error = ((found - (step.action - steps.CENTRE) / steps.HALF).square()).mean(-1)
    kl = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, log_std.exp()), torch.distributions.Normal(0.0, 1.0)
    ).mean(-1)
    # the actor, towards the better of two actions where one has an advantage
    made, _, _ = again(models["vae"], step.now, decided, steps.normal(seen.uniform(1, 4, tag=8)[:, 0]))
    made = (steps.CENTRE + steps.HALF * made).detach()
    worth = q(models["q"], step.now, made)[0]
    goal = torch.where((worth >= recorded[0]).unsqueeze(-1), made, step.action)
    mask = (torch.maximum(worth - value, torch.zeros(())) + (worth == value) + (recorded[0] > value) > 0).double()
    near = mask.detach() * ((decided - goal) / steps.HALF).square().mean(-1)
    scaled = q(models["q"], step.now, decided)[0] / step.mean(recorded[0].abs()).detach()
    return {
        "critic": step.mean((recorded - step.target(0.99, onward)).square()) / 2,
        "value": step.mean((value - step.target(0.99, both)).square()) / 2,
        "vae": step.mean(gate * error + kl / 2),
        "actor": step.mean(pull * near - 2.5 * scaled),
    }


def shares() -> float:
    """Returns 0 if on the claims' data all four cases of the gates occur: which is better, and whether it pulls."""
    engine = probes.formulas.built(recipe(), probes.BOX_SPEC)
    seen = probes.Seen(DATA(), engine.models, engine)
    step, q, models = steps.step_of(seen), steps.output, engine.models
    value, recorded = q(models["value"], step.now), q(models["q"], step.now, step.action)[0]
    open_share = float((recorded > value).double().mean())
    return float(not 0.05 < open_share < 0.95)


MIXED = (Log(45, noise=1.0), Log(5, noise=0.1, first=100))


def on_mixed(given: Recipe) -> Recipe:
    """Returns the recipe on nine parts of random episodes and one of an expert's."""
    return replace(given, source=replace(given.source, logs=MIXED, batch=64))  # type: ignore[type-var]


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand, DATA, probes.BOX_SPEC, 1e-8),
        same_gradient("another pull has the formula's gradient too", partial(recipe, pull=0.5),
                      partial(losses_by_hand, pull=0.5), DATA, probes.BOX_SPEC, 1e-8, of="settings of the pull"),
        Exact("recorded actions with and without an advantage are among the claims' data", shares, equals=0.0,
              of="the data of claims"),
        follows_schedule("actor and target networks move every second update, V and the autoencoder at each", recipe,
                         {"actor": 2, "q": 1, "value": 1, "vae": 1}, DELAYED),
        reads_dataset(lambda: recipe(log=Log(3))),
        Measured("where nine in ten episodes are random it scores higher than td3-bc", "pendulum", on_mixed(recipe()),
                 on_mixed(td3_bc(CONTINUOUS)), seeds=5, minutes=25, looks=2, steps=1_000, about=About.HEADLINE),
    ),
    mutants=(
        Edit("the worse action", NearBetter.goal, "worth >= recorded)", "worth < recorded)"),
        Edit("pulled everywhere", NearBetter.goal, "((worth >= value) | (recorded > value))",
             "((worth >= value) | (worth < value))"),
        Edit("both must have an advantage", NearBetter.goal, "(worth >= value) | (recorded",
             "(worth >= value) & (recorded"),
        Edit("all actions are learned", Reconstruct.__call__, "self.weight * good * error", "self.weight * error"),
        Edit("the gate holds the divergence too", Reconstruct.__call__, "good * error + divergence)",
             "good * (error + divergence))"),
        Edit("the target critics alone", LowerOfAll.__call__, "(self.q, self.q_target)",
             "(self.q_target, self.q_target)"),
        Edit("latents without noise", Autoencoder.remade, "mean + log_std.exp() * noise", "mean"),
    ),
)
