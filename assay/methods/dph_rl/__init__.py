"""dph-rl: grpo on what the start cannot do, and a mass-covering divergence on what it could.

    loss = grpo's on prompts that the start does not solve + eta mean_t f(u_t),   u_t = pi(y_t) / pi_start(y_t)
    on right answers y that the start gave to prompts it solves;   f(u) = u - 1 - log u (forward KL), or another

2025 (arXiv:2509.07430). Reverse KL on the policy's own samples does not see what the policy no longer does; a
divergence on the start's samples does. On samples that were filtered to right answers, f is not the likelihood: it is
0 at the start, and lowers an answer that has become likelier. Log-probabilities are stored: no reference model runs.
"""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from assay import recipes
from assay.claims import Edit, Exact, Final, Measured, Method
from assay.core.recipe import Copy, Recipe
from assay.methods.dph_rl.claims import gap, gap_to_grpo, mean_of, of_answers, slope, wrong_rehearsal
from assay.methods.dph_rl.regularizers import Alpha, CoveringDivergence, OfOrigin, forward_kl, jensen_shannon
from assay.methods.dph_rl.rehearsal import Rehearsed, Remembered, Unsolved, beside, start
from assay.ops.divergences import k2
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import Clip
from assay.parts.regularizers.divergence import KlToReference
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults


def recipe(world: Defaults = LANGUAGE, f: Callable[[Tensor], Tensor] = forward_kl, eta: float = 0.02) -> Recipe:
    base = recipes.grpo(world)
    own = PolicyGradient(trust=Clip(0.2, 0.28), aggregate=OfOrigin())
    stage = replace(base.stages[0], objective=(own,), regularizers=(CoveringDivergence(eta, f),))
    rehearsed = replace(base, name="dph-rl", source=Rehearsed(base.source), stages=(stage,), curriculum=Unsolved())
    return replace(rehearsed, before=(start(world),))


def js(world: Defaults = LANGUAGE) -> Recipe:
    """Jensen-Shannon divergence."""
    return recipe(world, jensen_shannon, 0.1)


def reverse(world: Defaults = LANGUAGE, eta: float = 0.02) -> Recipe:
    """The rival: grpo on all prompts with the reverse KL on the policy's own samples."""
    base = recipes.grpo(world)
    stage = replace(base.stages[0], regularizers=(KlToReference(eta, k2),))
    return replace(base, name="reverse-kl", stages=(stage,), copies={"reference": Copy(of="actor")})


METHOD = Method(
    paper="arXiv:2509.07430",
    recipe=recipe,
    worlds=(LANGUAGE,),
    family="policy gradient",
    base=recipes.grpo,
    variants={"js": js, "reverse-kl": reverse},
    departures=(
        "the first 256 prompts are split, four samples each; prompts after them count as unsolved",
        "stored rows are drawn uniformly, 32 beside each batch; the released code repeats a shuffled file",
        "grpo's loss plus eta times the mean over stored decisions; in the released code the weight also depends on "
        "their share of a micro-batch",
        "groups of 8 instead of 16; the two-sided `js` of the released code, which needs a live reference, is left out",
        "three designs were tried (eta 0.02, 0.1, 0.5; 2 and 3 pilot seeds); the smaller two kept less than reverse KL",
    ),
    claims=(
        Exact("its gradient is the formula's", lambda: gap(recipe(), lambda u: u - 1 - u.log()), at_most=1e-9),
        Exact("without stored rows it is grpo's", lambda: gap_to_grpo(recipe()), at_most=1e-9),
        Exact("with the Jensen-Shannon divergence", lambda: gap(recipe(f=jensen_shannon), lambda u: (
              u * u.log() - (u + 1) * ((u + 1) / 2).log())), at_most=1e-9),
        Exact("with the alpha divergence", lambda: gap(recipe(f=Alpha()), lambda u: (u**0.8 - 0.8 * u - 0.2) / -0.16),
              at_most=1e-9),
        Exact("the slope of the forward KL at u = 4", lambda: slope(recipe(), 4.0), equals=3.0),
        Exact("beyond f = 10 the slope is 0", lambda: slope(recipe(), 14.0), equals=0.0),
        Exact("over all answers of the start it is KL(start || policy)", lambda: mean_of(forward_kl), equals=0.092033),
        Exact("and twice the Jensen-Shannon divergence", lambda: mean_of(jensen_shannon), equals=0.043802),
        Exact("on two of three answers, at the start, it moves nothing; likelihood drains the third", lambda: (
              of_answers(recipe(), (0, 1), (0.5, 0.3, 0.2)).abs().max()), equals=0.0, tolerance=1e-12),
        Exact("away from it the third, too rare, is raised", lambda: of_answers(recipe(), (0, 1))[2], equals=-0.0125),
        Exact("the start is split once, its right answers stored and rehearsed, solved prompts left out",
              lambda: wrong_rehearsal(recipe(BIGRAMS)), equals=0.0),
        Measured("where contexts share parameters it keeps more of pass@64 than the reverse KL of the same weight",
                 "many-ways:right=94", recipe(BIGRAMS, eta=0.5).set("actor.rank", 4),
                 reverse(BIGRAMS, 0.5).set("actor.rank", 4), Final("pass@64"), minutes=6.0, steps=100, looks=2),
    ),
    mutants=(
        Edit("u upside down", CoveringDivergence.__call__, "view.scored.logp - batch.logp.detach()",
             "batch.logp.detach() - view.scored.logp"),
        Edit("stored rows learn from rewards", OfOrigin.rows, "(batch.source == self.origin)", "(batch.source >= 0)"),
        Edit("likelihood", forward_kl, "torch.expm1(log_u) - log_u", "-log_u"),
        Edit("samples of the split are stored", Remembered.__call__, "own & ~first & right", "own & right"),
        Edit("solved prompts stay", Unsolved.__call__, "prompt not in solved", "True"),
        Edit("stored rows join groups", beside, "-1 - torch.arange", "torch.arange"),
    ),
)  # fmt: skip
