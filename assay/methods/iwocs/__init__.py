"""iwocs: a robust policy from a sequence of ordinary problems, each in the worst regime for the policy so far.

    Q_j = Q* of regime T_j, T_0 nominal;   pi(s) = argmax_a min_j Q_j(s, a);   T_{j+1} = argmin_T V^pi_T(s_0)
    the minimum is over the j that have data at (s, a);   stop when V^pi_T{j+1}(s_0) is not below min_j V_j(s_0)

Zouitine, Geist & Rachelson 2024. If the set is sa-rectangular, a fixed regime is as bad as a changing one, and max_pi
min_T = min_T max_pi: the lowest of some optima is a bound that the policy can reach.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Edit, Exact, Expect, Final, Measured, Method, probes
from assay.methods.iwocs import claims as robust
from assay.methods.iwocs import exact
from assay.methods.iwocs.base import iwocs, quick_dqn
from assay.methods.iwocs.models import MaxMinQ
from assay.methods.iwocs.task_changes import WorstRegime
from assay.recipes.defaults import CONTROL

WALKS = [robust.windy_walk(seed) for seed in range(6)]


def from_robust_value_iteration() -> float:
    return probes.worst(*(abs(robust.worst_case_search(walk)[0] - walk.best(walk.robust())) for walk in WALKS))


def most_problems() -> int:
    return max(robust.worst_case_search(walk)[1] for walk in WALKS)


def found(seed: int) -> float:
    return robust.worst_case_search(robust.windy_walk(100 + seed))[0]


def nominal(seed: int) -> float:
    walk = robust.windy_walk(100 + seed)
    return walk.worst_value(walk.optimal(walk.nominal).argmax(1))


def on_average(seed: int) -> float:
    """Returns the worst value of the policy that is best if every step draws its candidate: domain randomisation."""
    walk = robust.windy_walk(100 + seed)
    mean = replace(walk, P=walk.P.mean(0, keepdim=True))
    return walk.worst_value(mean.optimal(mean.nominal).argmax(1))


def by_value_iteration(seed: int) -> float:
    walk = robust.windy_walk(100 + seed)
    return walk.best(walk.robust())


METHOD = Method(
    paper="arXiv:2410.06212",
    recipe=iwocs,
    worlds=(CONTROL,),
    default_task="windy-walk",
    family="robust",
    base=recipes.dqn,
    mutants=(
        Edit("the mean of the values", MaxMinQ.values, "torch.inf).amin(0)", "0.0).mean(0)"),
        Edit("every network counts everywhere", MaxMinQ.values, "valid | ~valid.any(0)", "valid | True"),
        Edit("where none is valid nothing counts", MaxMinQ.values, "valid | ~valid.any(0)", "valid"),
        Edit("the nominal regime in every phase", WorstRegime.__call__, "if policy is None", "if True"),
        Edit("the search never ends", WorstRegime.__call__, "returns[worst] >= expected - self.tolerance", "False"),
        Edit("each network only in its own place", iwocs, "range(place, problems)", "range(place, place + 1)"),
        Edit("returns without discount", WorstRegime.__call__, "played, self.discount", "played, 1.0"),
    ),
    departures=(
        "dqn solves the problems, and the worst regime is searched in a list, not between bounds",
        "a network counts where an autoencoder of its own replay reconstructs (s, a) as well as 95 % of it, and all do "
        "where none does; the authors' indicator is predictive coding, whose form and threshold we did not find",
        "at most as many problems as the program has phases",
        "regimes fixed per episode are not a rectangular set: with wind 0.2 in windy-walk pi waits forever in the calm",
    ),
    claims=(
        Exact("after its phases nothing is trained: no target network, no stage",
              lambda: len(iwocs().copies) + len(iwocs().stages), equals=0.0),
        Exact("its worst value is the best of all, by brute force", robust.from_brute_force, equals=0.0),
        Exact("on windy walks it finds robust value iteration's value", from_robust_value_iteration, equals=0.0),
        Exact("on windy walks it solves at most 3 problems", most_problems, at_most=3),
        Exact("a phase trains in the worst regime, or the search is over", exact.wrong_regimes, equals=0.0),
        Exact("solved networks take their places, the last one also the empty ones", exact.misplaced_networks,
              equals=0.0),
        Exact("networks count where they have data, all where none has", exact.validity_errors, equals=0.0),
        Exact("double DQN; coders fit their data and its 95 % quantile", exact.solving_gap, at_most=1e-9),
        Measured("windy walks: worst value above the nominal policy's", "", found, nominal, minutes=0.1),
        Measured("windy walks: above domain randomisation's", "", found, on_average, minutes=0.1),
        Measured("windy walks: robust value iteration's", "", found, by_value_iteration,
                 expect=Expect.WITHIN, margin=1e-6, minutes=0.1),
        Measured("with dqn: worst return above dqn's", "windy-walk", iwocs(), quick_dqn().set("steps", 600),
                 metric=Final("evaluation_worst"), seeds=5, minutes=7.0),
    ),
)  # fmt: skip
