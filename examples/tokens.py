"""Reinforcement learning of a small language model: two ways to value the same answers.

python examples/tokens.py [STEPS]
"""

import sys
from dataclasses import replace

import assay
from assay import recipes
from assay.parts import LeaveOneOut, OutcomeCredit

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100

# By name: method, task, budget. The tiny transformer first learns from demonstrations, then from a verifier.
run = assay.train("grpo", task="countdown", steps=steps, warmup=3 * steps)
print(f"grpo: {run.before.value:.2f} -> {run.after.value:.2f} of held-out puzzles solved")

# As a value: a recipe is a frozen record of parts. Replace one and you have another method.
recipe = replace(recipes.grpo(), name="grpo_loo", credit=(OutcomeCredit(LeaveOneOut()),))
other = assay.train(recipe, task="countdown", steps=steps, warmup=3 * steps)
print(f"with a leave-one-out baseline: {other.after.value:.2f}; everything about it is in {other.folder}")
