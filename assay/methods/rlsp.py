"""rlsp: ppo on a verifier plus a reward for effort that does not ask whether the answer is right.

    R = v - c / n,   v = 1 right, 0 wrong, -0.5 without an answer; n tokens, c = 1000 of 4096      (released runs)
    R = 0.8 v + 0.2 (1 - gamma^n),   n steps of search                                              (rlsp-search)

Ye et al. 2025. Search that does not lead anywhere earns nothing from a verifier, so a policy that cannot search yet
never starts. Effort alone is maximised by padding: it needs the verifier beside it, and is the negative control here.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from assay.method import LANGUAGE, AnswerFormat, Method, Preset, Recipe, Reward, Verifier, recipes, with_kl_in_reward
from assay.parts import ByLength, CountModes, Gated, Matches, Weighted, WeightedSum, inverse

ANSWER, BACKTRACK = r"\S", r"\b([Ww]ait|[Tt]ry again|[Bb]ack)\b"


Unit = str | Callable[[AnswerFormat], str]


PRICE = (-1000 / 4096, 0.0)


EFFORT = ByLength(PRICE, PRICE, curve=inverse)
"""-c / n whether right or wrong, c in proportion to the task's limit."""


def step_of(answers: AnswerFormat) -> str:
    """Returns the pattern of one step of search: the task's, else a word of taking back."""
    return answers.step or BACKTRACK


def backtracking_of(answers: AnswerFormat) -> Mapping[str, str]:
    """Returns the class of answers with a step of search."""
    return {"backtracking": f".*({step_of(answers)}).*"}


def with_rewards(preset: Preset, verifier: float, effort: float, of: Reward) -> Recipe:
    """Returns ppo on both rewards, weighed as given, with the KL in the reward and backtracking counted."""
    base = with_kl_in_reward(recipes.ppo(preset), "rlsp", 0.05)
    answer = Gated(Matches(ANSWER, 0), Verifier(), threshold=0.5, closed=-0.5)
    both = WeightedSum({"answer": Weighted(answer, verifier), "effort": Weighted(of, effort)})
    return replace(base, rewards=(both,), credit=(CountModes(backtracking_of), *base.credit))


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    """Returns ppo on the verifier and on effort, equally weighed."""
    return with_rewards(preset, 1.0, 1.0, EFFORT)


def search(preset: Preset = LANGUAGE, verifier: float = 0.8, effort: float = 0.2, unit: Unit = step_of) -> Recipe:
    """Pays for steps of search instead of length, less for each further one."""
    return with_rewards(preset, verifier, effort, Matches(unit, 0, decay=0.5))


METHOD = Method(
    paper="arXiv:2502.06773",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="redo",
    family="policy gradient",
    base=recipes.ppo,
    variants={"rlsp-search": search},
    departures=(
        "tokens instead of characters / 4; an answer is any text that is not blank, theirs the first box",
        "no judge of effort (give one as a component of the sum), no frozen actor in the first steps, temperature 1",
        "the weights and gamma of rlsp-search are our choice: the paper's were not found",
    ),
    pilots=(
        "measured on `redo`, where a step of search is a value taken back, as the task says; one design was tried",
    ),
)
