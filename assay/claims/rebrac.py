"""Claims of rebrac: its losses by hand, its limit, exact and measured claims, mutants. Axes: B, T decisions."""

from dataclasses import replace

from torch import Tensor

from assay.claims import DELAYED, About, Claims, Edit, Exact, Measured, follows_schedule, pendulum, probes
from assay.claims import reads_dataset, same_gradient, same_weights, steps
from assay.method import CONTINUOUS, Recipe, td3_bc
from assay.methods.rebrac import ClonedTwin, NearRecordedInTotal, recipe
from assay.parts import Log, smoothed_next


def losses_by_hand(seen: probes.Seen, actor_penalty: float = 0.05, critic_penalty: float = 0.01) -> dict[str, Tensor]:
    """Returns the losses; the action after each decision is recorded in the second column."""
    step, models, q, data = steps.step_of(seen), seen.models, steps.output, seen.experience
    b = steps.smoothed(seen)
    apart = ((b - data.action[:, 1]) / steps.HALF).square().sum(-1) * (1.0 - data.truncated[:, 0].double())
    onward = q(models["q_target"], step.after, b).amin(0) - critic_penalty * apart
    recorded, decided = q(models["q"], step.now, step.action), steps.bounded(models["actor"], step.now)
    scaled = q(models["q"], step.now, decided)[0] / step.mean(recorded[0].abs()).detach()
    near = ((decided - step.action) / steps.HALF).square().sum(-1)
    critic = step.mean((recorded - step.target(0.99, onward)).square()) / 2
    return {"critic": critic, "actor": step.mean(actor_penalty * near - scaled)}


def without(given: Recipe) -> Recipe:
    """Returns the recipe with td3-bc's critics."""
    return replace(given, critics=td3_bc().critics)


def plain() -> Recipe:
    """Returns the recipe with penalties of td3-bc and its critics, without layer norm; the weight 2.5 of its values is
    0.4 of the cloning, of two dimensions.
    """
    given = replace(recipe(critic_penalty=0.0), critics=td3_bc().critics)
    return given.set("MaximizeScaledQ.weight", 2.5).set("NearRecordedInTotal.coefficient", 0.5)


def following_gap() -> float:
    """Returns how far the second column of drawn rows is from the next recorded action of the same episode."""
    rows = Log(2, noise=0.5).columns(pendulum())
    inside = ~(rows["terminal"] | rows["truncated"])[:-1, 0]
    return float((rows["action"][:-1, 1] - rows["action"][1:, 0])[inside].abs().max())


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand,
                      lambda: probes.transitions(num=512), probes.BOX_SPEC, 1e-6),
        same_gradient("the penalties are two settings", lambda: recipe(actor_penalty=0.5, critic_penalty=2.0),
                      lambda seen: losses_by_hand(seen, 0.5, 2.0), lambda: probes.transitions(num=512),
                      probes.BOX_SPEC, 1e-6, of="penalties"),
        same_weights("without the critic's penalty and layer norm it is td3-bc", plain, td3_bc, at_most=1e-6,
                     illustrates=True),
        follows_schedule("actor and target networks move every second update", recipe, {"actor": 2, "q": 1}, DELAYED,
                         of="target networks"),
        Exact("the second column of a row is the action that was recorded next", following_gap, equals=0.0,
              of="sources"),
        reads_dataset(lambda: recipe(log=Log(3))),
        Measured("on data with half of the actions random it scores higher than td3-bc", "pendulum", recipe(),
                 td3_bc(CONTINUOUS), seeds=5, minutes=4, looks=2, steps=200, about=About.HEADLINE),
    ),
    mutants=(
        Edit("the penalty at cut episodes too", ClonedTwin.__call__, " * ~now.truncated", ""),
        Edit("the penalty towards this action", ClonedTwin.__call__, "action - after.action", "action - now.action"),
        Edit("the penalty's sign", ClonedTwin.__call__, "- self.penalty", "+ self.penalty"),
        Edit("the mean over dimensions", NearRecordedInTotal.size, "sum(-1)", "mean(-1)"),
        Edit("smoothing without a limit", smoothed_next, "noise.clamp(-limit, limit)", "noise"),
    ),
)
