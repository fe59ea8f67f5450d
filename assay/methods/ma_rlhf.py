"""ma-rlhf: ppo with credit on macro actions of several tokens instead of single ones.

    A_k = R_k + V(s_k+1) - V(s_k) + gae_lambda * A_k+1 over macro actions k;  loss = ppo's, a token has its macro's A_k

Chai et al. 2025. Macro actions shorten the path from the outcome back to a decision: credit decays once per macro
action. One token per macro action is ppo, one macro action per sequence REINFORCE with a baseline.

Axes: B sequences, T decisions.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from assay.method import LANGUAGE, Experience, Method, Need, Prepare, Preset, Recipe, Scene, State, recipes
from assay.parts import SegmentGae, Spans, Whiten, decision_before


@dataclass(frozen=True)
class FallingPerplexity(Prepare):
    """Extends a segment while its decisions grow likelier under the reference: MA-RLHF's perplexity rule.

    Writes `segment`; a decision with a lower log-probability than the previous one starts a new segment.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({Need.REFERENCE})

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Numbers the segments of each row from 1."""
        logp_ref, mask = experience.column("logp_ref"), experience.mask
        there, before = decision_before(mask)
        begins = mask & (~there | (logp_ref < logp_ref.gather(1, before)))
        return replace(experience, segment=begins.long().cumsum(1))


def recipe(preset: Preset = LANGUAGE, length: int = 5) -> Recipe:
    """Returns ppo whose credit is that of spans of `length` tokens."""
    credit = (Spans(length), SegmentGae(preset.gae.discount, preset.gae.gae_lambda), Whiten())
    return replace(recipes.ppo(preset), name="ma-rlhf", credit=credit)


METHOD = Method(
    paper="arXiv:2410.02743",
    recipe=recipe,
    default_task="sorting",
    family="credit assignment",
    base=recipes.ppo,
    departures=(
        "what it gains over ppo here a longer lambda gains too: mean pass rate 0.315, ppo with 0.95^(1/5) 0.313, ppo "
        "with 0.95 0.268 (key-decisions:length=32, five seeds)",
        "a macro action's value is that of its first state; the authors' mean over its states biases the gradient",
        "rewards inside a macro action are summed, as in the paper; the authors' code takes their mean",
        "each token has its own ratio, as in the authors' code; the paper writes the macro action's joint ratio",
        "no KL in the reward, whitened advantages, no value clipping: as in ppo here",
        "no parser: macro actions are spans, falling perplexity (FallingPerplexity) or a given column `segment`",
    ),
)
