"""Claims of decision-transformer: its loss by hand, what it sees, what it asks for, mutants. Axes: B windows, T."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from assay.claims import About, Claims, Edit, Exact, Measured, cartpole, probes, same_gradient, trajectories
from assay.claims import with_statistics
from assay.method import CONTINUOUS, CONTROL, Preset, Recipe, recipes
from assay.models import Blocks, TrajectoryOutputs
from assay.parts import Log, Logged
from assay.parts.sources import windows

LOG, recipe = Log(3, noise=0.5), recipes.decision_transformer


def small(preset: Preset = CONTROL) -> Recipe:
    """Returns the recipe with a small stack and known units of returns."""
    whole = recipe(preset, log=LOG, length=5)
    return whole.set("stack.width", 8).set("actor.body.scale", 2.0)


def likelihood(seen: probes.Seen) -> Tensor:
    """Returns minus the mean log-probability of choices, or half the squared distance in half-ranges."""
    data, spec = seen.experience, probes.BOX_SPEC if seen.experience.action.is_floating_point() else probes.CHOICE_SPEC
    done = trajectories.vectors_of(data.context["previous_action"], spec)
    body = seen.models["actor"].body
    out = trajectories.outputs(trajectories.weights_of(body), body.settings.stack, data.context, done, 2.0)
    taken = trajectories.vectors_of(data.action, spec)
    if data.action.is_floating_point():
        loss = (out.tanh() - taken).square().sum(2) / 2
    else:
        loss = -(functional.log_softmax(out, 2) * taken).sum(2)
    return loss[data.mask].mean()


def best_of_log() -> float:
    """Returns how far the target is from the best return of the log, and the scale from the largest return-to-go."""
    plan = with_statistics(recipe(log=LOG), cartpole(), seed=0)
    rewards = LOG.columns(cartpole())
    ends = (rewards["terminal"] | rewards["truncated"])[:, 0].nonzero().squeeze(1) + 1
    lengths = ends.diff(prepend=torch.zeros(1, dtype=torch.int64)).double()  # every step pays 1
    body = plan.actor.body  # type: ignore[attr-defined]
    return abs(body.target - float(lengths.max())) + abs(body.scale - float(lengths.max()))


BC = replace(recipes.bc(), source=Logged((Log(),), 64))

CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is that of the likelihood of choices, token by token", small, likelihood,
                      partial(trajectories.windows, probes.CHOICE_SPEC), probes.CHOICE_SPEC, at_most=1e-6),
        same_gradient("with continuous actions its gradient is that of least squares", partial(small, CONTINUOUS),
                      likelihood, trajectories.windows, probes.BOX_SPEC, at_most=1e-6, of="continuous-control"),
        Exact("an action sees returns and states up to its own and actions before it",
              lambda: trajectories.leaks(small(CONTINUOUS)), equals=0.0, illustrates=True),
        Exact("acting with an episode's return as its target it decides as training scored that episode",
              lambda: trajectories.acting_gap(small(), cartpole()), at_most=1e-5),
        Exact("it asks for the best return of its log", best_of_log, at_most=1e-9),
        Measured("where the log is of mixed quality it scores higher than cloning", "logged-tree:coverage=0.3",
                 recipe(length=5), BC, seeds=5, minutes=5, steps=40, about=About.HEADLINE),
    ),
    mutants=(
        Edit("the target is not decremented", TrajectoryOutputs.latest,
             '(self.settings.target or 0.0) - context.get("received", state.new_zeros(rows))',
             "(self.settings.target or 0.0) + state.new_zeros(rows)"),
        Edit("returns without the present reward", windows.places_of, "sums[ends][episode] - sums + reward",
             "sums[ends][episode] - sums"),
        Edit("the outputs of the return tokens", TrajectoryOutputs.forward, "1::3", "::3"),
        Edit("tokens see those after them", Blocks.forward, "block(x, turn, None)",
             "block(x, turn, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool))"),
        Edit("rows are not aligned at their first decision", TrajectoryOutputs.latest, "(~past).sum(1, keepdim=True)",
             "0 * past.sum(1, keepdim=True)"),
    ),
)
