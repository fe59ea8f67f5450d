"""The same library on control: PPO balances a pole by name, then with another credit in place of its own.

python examples/torques.py [STEPS]
"""

import sys
from dataclasses import replace

import assay
from assay import recipes
from assay.parts import RewardToGo, Whiten

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60

run = assay.train("ppo", task="cartpole", steps=steps)
print(f"ppo: held-out return {run.before.value:.0f} -> {run.after.value:.0f}; everything about it is in {run.folder}")

# Settings are found by any unambiguous end of their path; parts are values that can be replaced.
recipe = replace(recipes.ppo().set("epochs", 2), name="ppo_to_go", credit=(RewardToGo(discount=0.99), Whiten()))
other = assay.train(recipe, task="cartpole", steps=steps)
print(f"with rewards to go instead of generalised advantages: {other.after.value:.0f}")
