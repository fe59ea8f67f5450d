"""The families of methods, in the order in which they are listed, and the kinds of task that they work on."""

FAMILIES = (
    "policy gradient", "credit assignment", "long context", "guidance", "distillation", "imitation", "preference",
    "curriculum", "games", "value-based", "offline", "offline to online", "goal-conditioned", "safe", "robust",
    "systems",
)  # fmt: skip
"""The values of a method's `family`."""
KINDS = ("language", "control", "continuous control", "table", "preference pairs")
"""The names of the presets that a method can be for."""


def alike(known: str, wanted: str) -> bool:
    """Returns whether two words are equal but for case, '-' for a space, and a plural s."""
    one, other = (word.lower().replace("-", " ").removesuffix("s") for word in (known, wanted))
    return one == other
