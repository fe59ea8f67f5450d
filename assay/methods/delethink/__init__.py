"""delethink: reasoning in chunks that see the prompt and a short tail of the previous one; one reward.

    chunk l: pi(y_l | prompt, last m tokens before it);   loss = -mean_i 1/|y_i| sum_l sum_t min(rho A_i, clip(rho) A_i)

Aghajohari et al. 2025 (The Markovian Thinker). The state has constant size, so cost is linear in the length; training
with resets makes the policy write down what it needs before a cut. The credit is grpo's over whole episodes, the mean
is over all tokens of all chunks of an episode, and each chunk is scored in the context it was sampled in.
"""

from dataclasses import replace

from assay import recipes
from assay.claims import Average, Exact, Measured, Method, probes
from assay.core.recipe import Recipe, Stage
from assay.methods.delethink.claims import cut_in_rows, loss_by_hand, wrong_chunks
from assay.methods.delethink.rollout import Chunks
from assay.parts.aggregations import SequenceMean
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import DualClip
from assay.recipes.defaults import LANGUAGE, Defaults


def recipe(world: Defaults = LANGUAGE, chunk: int = 0, carry: int = -1) -> Recipe:
    """Returns GRPO on chunked episodes; 0 and -1 derive the sizes from the task's limit."""
    base = recipes.grpo(world)
    assert base.rollout is not None
    objective = PolicyGradient(trust=DualClip(0.2, 0.26, 3.0), aggregate=SequenceMean())
    stage = Stage("policy", ("actor",), (objective,), optimizer=world.optimizer)
    rollout = Chunks(base.rollout.num_starts, chunk=chunk, carry=carry)
    return replace(base, name="delethink", rollout=rollout, stages=(stage,))


METHOD = Method(
    paper="arXiv:2510.06557",
    recipe=recipe,
    worlds=(LANGUAGE,),
    family="long context",
    base=recipes.grpo,
    departures=("the verifier reads all chunks of an episode, not only the last window; answers are short here",
             "the carry is the tail alone: the public code also keeps the first 100 tokens of the trace",
             "a chunk is a quarter of the task's limit, half of it carried; in the paper a third of 24k tokens"),
    claims=(
        Exact("off-policy its gradient is the formula's: one advantage and one mean for all rows of an episode",
              lambda: probes.formula_gap(recipe(), cut_in_rows(), loss_by_hand), at_most=1e-9),
        Exact("each chunk sees the prompt and the tail of the answer, up to the task's limit",
              lambda: max(wrong_chunks(recipe(), limit) for limit in (9, 40)), equals=0.0),
        Measured("chunked answers are right as often as grpo's with the whole context", "sorting-5", recipe(),
                 recipes.grpo(), metric=Average("reward", 0.2), margin=-0.05, seeds=5, minutes=22.0, steps=100, looks=4,
                 warmup=60),
    ),
)  # fmt: skip
