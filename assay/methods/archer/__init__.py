"""archer: a critic of whole turns, trained off-policy from replay, gives each utterance one advantage.

    Q(s_k, u_k) <- R_k + discount * V'(s_k+1);   V(s_k) <- E_pi min_i Q'_i(s_k, u)
    loss = -mean (min_i Q_i(s_k, u) - V(s_k)) * log pi(u | s_k) at replayed states s_k, u ~ pi new in both

Zhou et al. 2024. Two levels: between turns an off-policy temporal-difference critic, within a turn a plain policy
gradient over its tokens, which costs no turn of the environment. If each decision is a turn (control) it is
actor-critic with Q - V.
"""

from dataclasses import replace

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes
from assay.methods.archer.base import turn_critic


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    """Returns the actor-critic of turns under its own name."""
    return replace(turn_critic(preset), name="archer")


METHOD = Method(
    paper="arXiv:2402.19446",
    recipe=recipe,
    default_task="twenty-questions",
    family="credit assignment",
    base=recipes.reinforce,
    departures=(
        "one V for the smaller of two Q, in a network of its own; the authors' code has two of each on one encoder",
        "V and the policy share the batches of new turns, 16 a step with 5 or 6 policy steps, after 16 of Q; the "
        "authors' code draws them apart, 50 and 3. One turn of each replayed conversation is decided again",
        "small transformers from scratch, not RoBERTa; no discount between turns, which are few",
        "not measured: how the lead grows with the number of turns; the testbed's conversations have one length",
    ),
    results=(
        "reinforce wins 55 % after 17,000 to 32,000 decisions and archer after 47,000 to 69,000, the reverse of the "
        "paper: games of two questions tell the outcome at once, so that credit by turns saves little, and Q and V are "
        "learnt from nothing before they can rank turns. It is the testbed, not the implementation: with tables for "
        "critics, on a grid of up to 64 noisy turns (gridworld:size=4,slip=0.3), 30,000 decisions end at -7.0 to -8.4 "
        "and reinforce's at -10.8 to -11.7 (seeds 0 and 1), although its policy does not move in the first fifth; on a "
        "chain of 8, which reinforce solves in 7,000 decisions, that delay alone makes it slower",
    ),
)
