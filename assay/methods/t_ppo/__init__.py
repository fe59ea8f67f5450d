"""t-ppo: ppo on windows of unfinished answers; the policy trains on windows, the critic on finished answers.

    policy: A_t = delta_t + lambda A_(t+1) on the window, V(s_L) := V(s_(L-1)) where it stops before the end
    critic: mean over all decisions of the answers that ended now of (V(s_t) - R)^2 / 2

Fan et al. 2025. A step never waits for the longest answer: it takes at most `window` decisions in every slot, and
unfinished answers continue at the next step. With a window as long as an answer it is ppo with a Monte-Carlo critic.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Exact, Measured, Method, probes
from assay.core.recipe import Recipe
from assay.methods.t_ppo.claims import bias, in_windows, losses_by_hand, wrong_windows
from assay.methods.t_ppo.credit import ExtendedGae, WithoutTail
from assay.methods.t_ppo.rollout import Windows
from assay.methods.t_ppo.targets import FINISHED_VALUE
from assay.parts.credit.temporal import Whiten
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import DualClip
from assay.recipes.defaults import LANGUAGE, STALE, Defaults


def recipe(world: Defaults = LANGUAGE, slots: int = 256, window: int = 0) -> Recipe:
    """Returns PPO with windows (0: from the task's limit), extended advantages, a critic of finished answers."""
    base = recipes.ppo(world)
    policy = replace(base.stages[0], objective=(PolicyGradient(trust=DualClip(0.2, 0.28, 10.0)),), regularizers=())
    value = replace(base.stages[1], critic=(FINISHED_VALUE,))
    credit = (ExtendedGae(world.gae.discount, world.gae.gae_lambda), WithoutTail(1), Whiten())
    rollout = Windows(slots, window)
    return replace(base, name="t-ppo", rollout=rollout, curriculum=None, credit=credit, stages=(policy, value))


METHOD = Method(
    paper="arXiv:2506.15050",
    recipe=recipe,
    worlds=(LANGUAGE,),
    family="long context",
    base=recipes.ppo,
    aliases=("truncated-ppo",),
    departures=(
        "one answer per prompt instead of 16, one position dropped at a window's end, not 8: windows are short here",
        "a step's window has a random length, from half to all of `window`, so that no place is always at its end",
        "no warm-up of the critic alone, 10 iterations in the public port",
        "that position is dropped even if the answer ended there; the public port keeps it then, which is biased",
        "fixed lambda, no likelihood term on correct answers (both are in the public port), no value clipping",
        "new prompts come in order, whatever the curriculum: their number depends on how many answers have finished",
    ),
    claims=(
        Exact("off-policy its gradients are the formula's: open windows, dropped tails, finished answers",
              lambda: probes.formula_gap(recipe(), in_windows(), losses_by_hand), at_most=1e-9),
        Exact("windows continue answers, and every place of an answer is trained",
              lambda: wrong_windows(recipe(slots=8)), equals=0.0),
        Exact("with exact values, every place but the tail has the exact gradient", lambda: bias(recipe()), equals=0.0),
        Measured("after 660 decisions one after the other, 6 a step and not 33, its score is above ppo's; refuted by a "
                 "lead below 0.05", "register-walk", replace(recipe(STALE), steps=110),
                 replace(recipes.ppo(STALE), steps=20), margin=0.05, seeds=5, minutes=5.0),
    ),
)  # fmt: skip
