"""rlsp: ppo on a verifier plus a reward for effort that does not ask whether the answer is right.

    R = v - c / n,   v = 1 right, 0 wrong, -0.5 without an answer; n tokens, c = 1000 of 4096      (released runs)
    R = 0.8 v + 0.2 (1 - gamma^n),   n steps of search                                              (rlsp-search)

Ye et al. 2025. Search that does not lead anywhere earns nothing from a verifier, so a policy that cannot search yet
never starts. Effort alone is maximised by padding: it needs the verifier beside it, and is the negative control here.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Area, Edit, Exact, Expect, Final, Measured, Method, by_hand, probes, same_gradient
from assay.core.recipe import Recipe
from assay.core.slots import Reward
from assay.core.verifier import Verifier
from assay.methods.rlsp import claims
from assay.parts.credit.modes import CountModes
from assay.parts.rewards.combine import Gated, Weighted, WeightedSum
from assay.parts.rewards.length import ByLength, inverse
from assay.parts.rewards.text import Matches
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults
from assay.recipes.group import with_kl_in_reward

ANSWER, BACKTRACK = r"\S", r"\b([Ww]ait|[Tt]ry again|[Bb]ack)\b"
PRICE = (-1000 / 4096, 0.0)
EFFORT = ByLength(PRICE, PRICE, curve=inverse)
"""-c / n whether right or wrong, c in proportion to the task's limit."""


def with_rewards(world: Defaults, verifier: float, effort: float, of: Reward, step: str) -> Recipe:
    base = with_kl_in_reward(recipes.ppo(world), "rlsp", 0.05)
    answer = Gated(Matches(ANSWER, 0), Verifier(), threshold=0.5, closed=-0.5)
    both = WeightedSum({"answer": Weighted(answer, verifier), "effort": Weighted(of, effort)})
    return replace(base, rewards=(both,), credit=(CountModes({"backtracking": f".*({step}).*"}), *base.credit))


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    return with_rewards(world, 1.0, 1.0, EFFORT, BACKTRACK)


def search(world: Defaults = LANGUAGE, verifier: float = 0.8, effort: float = 0.2, unit: str = BACKTRACK) -> Recipe:
    """Pays for steps of search instead of length, less for each further one."""
    return with_rewards(world, verifier, effort, Matches(unit, 0, decay=0.5), unit)


OURS, VERIFIER, PADDING = (search(BIGRAMS, *weights, "0") for weights in ((0.8, 0.2), (0.8, 0.0), (0.0, 1.0)))
"""On `redo` a 0 takes the last value back."""

METHOD = Method(
    paper="arXiv:2502.06773",
    recipe=recipe,
    worlds=(LANGUAGE,),
    default_task="redo",
    family="policy gradient",
    base=recipes.ppo,
    variants={"rlsp-search": search},
    departures=(
        "tokens instead of characters / 4; an answer is any text that is not blank, theirs the first box",
        "no judge of effort (give one as a component of the sum), no frozen actor in the first steps, temperature 1",
        "the weights and gamma of rlsp-search are our choice: the paper's were not found",
        "measured on `redo`, where effort is a value taken back; one design was tried",
    ),
    claims=(
        same_gradient("its gradients are ppo's with the KL in the reward", lambda: replace(recipe(), rewards=()),
                      lambda seen: by_hand.ppo_of_tokens(by_hand.with_kl(seen, 0.05)), probes.fragments),
        same_gradient("also where most advantages are negative", lambda: replace(recipe(), rewards=()),
                      lambda seen: by_hand.ppo_of_tokens(by_hand.with_kl(seen, 0.05)),
                      lambda: probes.fragments(lower=1.0)),
        Exact("rewards at 4,096 tokens: a right answer beats a full-length wrong one from 804 tokens on",
              lambda: probes.reward_gap(recipe(), claims.BY_LENGTH, 4096), at_most=1e-5),
        Exact("effort alone pays for every further token", lambda: claims.paid(EFFORT).diff().min(), at_least=1e-3),
        Exact("steps of search pay 0, 0.1, 0.15 beside 0.8",
              lambda: probes.reward_gap(search(), claims.BY_STEPS), at_most=1e-6),
        Measured("where errors are planted it learns faster to take them back than with the verifier alone", "redo",
                 OURS, VERIFIER, Area("pass_rate/planted"), seeds=10, minutes=6.0, steps=100, looks=2),
        Measured("control: effort alone solves less than the verifier", "redo", PADDING, VERIFIER, Final("pass_rate"),
                 Expect.BELOW, seeds=10, minutes=6.0, steps=100, looks=2),
    ),
    mutants=(
        Edit("effort grows without end", Matches.apply, "1.0 - self.decay**", "self.decay * "),
        Edit("no price for no answer", with_rewards, "closed=-0.5", "closed=0.0"),
        Edit("effort is paid for right answers alone", with_rewards, "Weighted(of, effort)",
             "Weighted(Gated(Verifier(), of), effort)"),
        Edit("search without a verifier", search, "world, verifier, effort", "world, 0.0, effort"),
    ),
)  # fmt: skip
