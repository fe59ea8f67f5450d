"""Rlsp's rewards by hand, on answers of given lengths. Axes: B sequences, T decisions."""

from dataclasses import replace

from torch import Tensor

from assay.claims import About, Area, Claims, Edit, Exact, Expect, Final, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS, Reward, recipes
from assay.claims.testbeds.language.redo import redo
from assay.methods.rlsp import recipe, search, with_rewards
from assay.parts import Matches

PAID = {250: -3.0, 500: -1.0, 803: -0.24533, 804: -0.24378, 1000: 0.0, 2000: 0.5, 4096: 0.75586}
"""What a right answer of so many tokens, the end token included, gets with c = 1000."""


BY_LENGTH = {"." * (length - 2) + "7": paid for length, paid in PAID.items()}


BY_LENGTH |= {"." * 4095: -0.24414, " " * 4095: -0.74414}
"""The same with a wrong and a blank answer of full length."""


BY_STEPS = {"7": 0.8, "8 wait 7": 0.9, "8 wait 9 back 7": 0.95, "8 wait 9": 0.1}
"""What right answers with 0, 1 and 2 steps of search, and a wrong one with 1, get."""


def paid(effort: Reward) -> Tensor:
    """Returns what effort alone pays for answers of 1 to 64 tokens, at a limit of 64."""
    said = ["." * length for length in range(64)]
    return probes.rewarded(replace(recipes.ppo(), rewards=(effort,)), *probes.answered(said))


OURS, VERIFIER, PADDING = (search(BIGRAMS, *weights) for weights in ((0.8, 0.2), (0.8, 0.0), (0.0, 1.0)))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are ppo's with the KL in the reward", lambda: replace(recipe(), rewards=()),
                      lambda seen: by_hand.ppo_of_tokens(by_hand.with_kl(seen, 0.05)), probes.fragments),
        same_gradient("its gradients are ppo's with the KL in the reward also where most advantages are negative",
                      lambda: replace(recipe(), rewards=()),
                      lambda seen: by_hand.ppo_of_tokens(by_hand.with_kl(seen, 0.05)),
                      lambda: probes.fragments(lower=1.0)),
        Exact("rewards at 4,096 tokens are the table's: a right answer beats a full-length wrong one from 804 tokens "
              "on",
              lambda: probes.reward_gap(recipe(), BY_LENGTH, 4096), at_most=1e-5),
        Exact("steps of search pay 0, 0.1, 0.15 beside 0.8",
              lambda: probes.reward_gap(search(), BY_STEPS), at_most=1e-6),
        Exact("on a task that says what takes a value back, that is paid", lambda: probes.table_gap(
              search(), redo(), (("0", 0, 0.1), ("00", 0, 0.15), ("1", 0, 0.0))), at_most=1e-6, of="rlsp-search"),
        Measured("where errors are planted it learns faster to take them back than with the verifier alone", "redo",
                 OURS, VERIFIER, Area("pass_rate/planted"), seeds=10, minutes=6.0, steps=100, looks=2,
                 about=About.HEADLINE),
        Measured("control: effort alone solves less than the verifier", "redo", PADDING, VERIFIER, Final("pass_rate"),
                 Expect.BELOW, seeds=10, minutes=6.0, steps=100, looks=2, about=About.COMPONENT),
    ),
    mutants=(
        Edit("effort grows without end", Matches.apply, "1.0 - self.decay**", "self.decay * "),
        Edit("no price for no answer", with_rewards, "closed=-0.5", "closed=0.0"),
        Edit("effort is paid for right answers alone", with_rewards, "Weighted(of, effort)",
             "Weighted(Gated(Verifier(), of), effort)"),
        Edit("search without a verifier", search, "preset, verifier, effort", "preset, 0.0, effort"),
    ),
)
