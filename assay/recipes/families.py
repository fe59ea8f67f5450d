"""The families of methods, in the order in which they are listed."""

FAMILIES = (
    "policy gradient", "credit assignment", "long context", "guidance", "distillation", "imitation", "preference",
    "curriculum", "games", "value-based", "offline", "offline to online", "goal-conditioned", "safe", "robust",
    "systems",
)  # fmt: skip
"""The values of a method's `family`."""
