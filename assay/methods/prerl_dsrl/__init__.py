"""prerl-dsrl: first lowers wrong answers without their prompts, then grpo.

    in the first fifth of the run:   loss = -0.01 mean_t A clipped(rho_t),   rho_t = P(y_t | y_<t) / P_old(y_t | y_<t)
    over answers with A = R - mean R of the group < 0, after the start token alone;   then grpo with a mean over tokens

2026 (arXiv:2604.14142, DSRL). Answers are sampled from prompts and verified as usual. The gradients of log P(y) and
log P(y | x) point the same way in a language model, so that wrong reasoning is pruned for all prompts at once. The
optimizer keeps its state at the switch. Not a policy gradient; recorded log-probabilities are recomputed, or the
ratio would compare two contexts. A model that never saw a bare answer has little to say about P(y).
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Edit, Exact, Measured, Method, by_hand, probes
from assay.core.recipe import Recipe
from assay.methods.prerl_dsrl.claims import alignment, changed_later, gap, moved_by_prompts
from assay.methods.prerl_dsrl.credit import WithoutPrompt
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import DualClip
from assay.recipes.defaults import LANGUAGE, Defaults
from assay.recipes.group import with_policy
from assay.tasks.control.cartpole import cartpole


def plain(world: Defaults = LANGUAGE) -> Recipe:
    """Returns grpo with a mean over tokens: what the method is after the switch."""
    return with_policy(recipes.grpo(world), "grpo-tokens", PolicyGradient(trust=DualClip(0.2, 0.2, 10.0)))


def recipe(world: Defaults = LANGUAGE, first: WithoutPrompt = WithoutPrompt()) -> Recipe:
    base = plain(world)
    return replace(base, name="prerl-dsrl", credit=(*base.credit, first))


def prerl(world: Defaults = LANGUAGE) -> Recipe:
    """Without the second phase: wrong answers without their prompts to the end."""
    return recipe(world, WithoutPrompt(share=1.0))


METHOD = Method(
    paper="arXiv:2604.14142",
    recipe=recipe,
    worlds=(LANGUAGE,),
    family="policy gradient",
    base=plain,
    variants={"nsr-prerl": prerl, "grpo-tokens": plain},
    departures=(
        "the first fifth of the run instead of 20 steps",
        "the dual clip of 10 stays on after the switch",
        "the warm-up has no bare answers; P(y) of the small models here is what prompts taught them",
        "no claim on pass@16: tables of tokens share no parameters between prompts and no prompt, and a transformer on "
        "countdown takes more time than a claim here may; two designs for the cosine (a larger transformer: +0.07, one "
        "pilot seed)",
    ),
    claims=(
        Exact("in the first fifth its gradient is the formula's, of wrong answers in mixed groups",
              lambda: gap(recipe()), at_most=1e-7),
        Exact("another prompt of the same answer changes nothing", lambda: moved_by_prompts(recipe()), equals=0.0),
        Exact("after it, credit and contexts are grpo's", lambda: changed_later(recipe(), plain()), equals=0.0),
        Exact("and so is the gradient, with a mean over tokens", lambda: probes.formula_gap(
              plain(), probes.sequences(), lambda seen: -by_hand.mean_of_decisions(by_hand.clipped(
                  by_hand.ratio(seen), by_hand.standardised(seen.experience).unsqueeze(1), 0.2, 0.2), seen.experience)),
              at_most=1e-9),
        Exact("a task without prompts is refused", lambda: probes.is_refused(recipe(), cartpole()), equals=1.0),
        Measured("the gradients of log P(y) and log P(y | x) of a sampled answer are closer than those of two answers: "
                 "difference of the mean cosines", "sorting-5", alignment, 0.0, seeds=10, minutes=4.0, looks=2),
    ),
    mutants=(
        Edit("right answers learn", WithoutPrompt.apply, "self.coefficient * self.right, self.coefficient * self.wrong",
             "self.coefficient * self.wrong, self.coefficient * self.right"),
        Edit("log-probabilities after the prompt", WithoutPrompt.apply, "logp=logp * bare.mask", "logp=bare.logp"),
        Edit("with the prompt", WithoutPrompt.apply, 'task.onto(experience, [""] * len(experience))', "experience"),
        Edit("all rows count in the mean", WithoutPrompt.apply, ", WithoutIdle())", ")"),
        Edit("to the end of the run", WithoutPrompt.apply, ">= self.share", "> 1.0"),
    ),
)  # fmt: skip
