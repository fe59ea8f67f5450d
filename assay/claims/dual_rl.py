"""The losses of dual-rl by hand. Axes: B transitions, N critics."""

from dataclasses import replace
from functools import partial

import torch

from assay.claims import About, Average, Claims, Edit, Exact, Measured, cartpole, follows_schedule, probes
from assay.claims import reads_dataset, steps
from assay.method import CONTROL, TABLE, Origin, Preset, Recipe
from assay.methods.dual_rl import XQL, ChiSquare, ImplicitMaximum, MatchMixture, f_dvl, recoil, shown
from assay.parts import LogLikelihood, Logged


def cloned(preset: Preset = CONTROL, expert: int = 1) -> Recipe:
    """Returns behaviour cloning of the same expert episodes alone."""
    base = f_dvl(preset)
    stage = replace(base.stages[1], objective=(LogLikelihood(),))
    return replace(base, name="cloned", critics={}, copies={}, source=Logged((shown(expert),)), stages=(stage,))


SPEC = probes.CHOICE_SPEC


DATA = probes.of_origins(probes.transitions(SPEC, num=64), Origin.TEACHER, Origin.DATASET)
"""Half of the rows are the expert's."""


def losses_by_hand(
    seen: probes.Seen, divergence: str, rewards: float = 1.0, scale: float = 1.0, clip: float = 7.0
) -> dict[str, torch.Tensor]:
    step, models, out = steps.step_of(seen), seen.models, steps.output
    gain = out(models["q_target"], step.now, step.action).amin(0).detach() - out(models["value"], step.now)
    above = torch.where(gain > 0, gain, 0.0)
    short = (gain / scale).clamp(max=clip)
    raised = {"variation": 0.8 * above - 0.2 * gain, "kl": 0.5 * short.exp() - 0.5 * short,
              "chi": 0.8 * (above + above.square() / 4) - 0.2 * gain}  # fmt: skip
    logp = out(models["actor"], step.now).log_softmax(-1)[torch.arange(len(gain)), step.action]
    q, onward = out(models["q"], step.now, step.action), 0.99 * step.goes_on * out(models["value"], step.after).detach()
    critic = step.mean((step.reward + onward - q).square()) / 2
    if rewards == 0.0:
        expert = step.here & (torch.arange(64) % 2 == 0)
        both = step.mean((onward - q).square()) / 4
        critic = both - q[:, expert].sum() / step.here.sum()
    return {
        "value": step.mean(raised[divergence]),
        "actor": -step.mean((3.0 * gain).exp().clamp(max=100.0).detach() * logp),
        "q": critic,
    }


def gradient_gap(
    recipe: Recipe, divergence: str, rewards: float = 1.0, scale: float = 1.0, clip: float = 7.0
) -> float:
    formula = partial(losses_by_hand, divergence=divergence, rewards=rewards, scale=scale, clip=clip)
    return probes.formula_gap(recipe, DATA, formula, SPEC)


CLAIMS = Claims(
    mutants=(
        Edit("the terminal state bootstraps in ReCOIL", MatchMixture.__call__, " * (~now.terminal)", ""),
        Edit("only expert rows are consistent", MatchMixture.__call__, "(1.0 - self.share) * (now", "0.0 * (now"),
        Edit("Q is raised on all rows", MatchMixture.__call__, "self.share * expert * q", "self.share * q"),
        Edit("the maximum's clip is on both sides", ImplicitMaximum.__call__, "clamp(max", "clamp(-1.0, max"),
        Edit("plain cloning", f_dvl, "AdvantageRegression(3.0", "AdvantageRegression(0.0"),
    ),
    claims=(
        Exact("with total variation its gradients are those of the formulas",
              lambda: gradient_gap(f_dvl(), "variation"), at_most=1e-9),
        Exact("with the chi-square conjugate its gradients are those of the formulas",
              lambda: gradient_gap(f_dvl(maximum=ImplicitMaximum(ChiSquare())), "chi"), at_most=1e-9, of="chi-square"),
        Exact("Gumbel regression is cut off and scaled", lambda: gradient_gap(
              f_dvl(maximum=replace(XQL, scale=0.5, clip=1.0)), "kl", scale=0.5, clip=1.0), at_most=1e-9),
        Exact("XQL's gradients are those of Gumbel regression",
              lambda: gradient_gap(f_dvl(maximum=XQL), "kl"), at_most=1e-9, of="xql"),
        Exact("ReCOIL's gradients are those of the formulas, without rewards",
              lambda: gradient_gap(recoil(), "variation", rewards=0.0), at_most=1e-9),
        follows_schedule("target critics follow at rate 0.005", f_dvl, {"actor": 1, "value": 1, "q": 1}, spec=SPEC),
        reads_dataset(f_dvl, cartpole, of=""),
        Measured(
            "with large rewards f-DVL learns sooner than XQL",
            "gridworld", f_dvl(TABLE, ImplicitMaximum(), 100.0), f_dvl(TABLE, XQL, 100.0),
            metric=Average("evaluation"), seeds=5, minutes=1.0, steps=60, about=About.HEADLINE,
        ),
        Measured(
            "from one expert episode and random ones ReCOIL does better than cloning the expert's",
            "cartpole", recoil(), cloned(), seeds=5, minutes=24.0, steps=600, about=About.HEADLINE,
        ),
    ),
)
