"""Formats as arms of a bandit, and answers of each format."""

from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Final, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS
from assay.claims.testbeds.language.formats import formats
from assay.methods.echo_chamber import ANCHORED, recipe
from assay.parts import CountModes
from assay.tasks.tabular.bandit import bandit

BANDIT = bandit((0.5, 0.5))


SCRIPT = {
    "def f(x):\n  return 7": "function", "def g(): 7": "function", "<llm-code>print(7)</llm-code>7": "code",
    "Definitely 7": "text", "it is\n7": "text", "I define it: 8": "text", "7": "text", "...": "other",
}  # fmt: skip
"""Answers and their formats."""


def loss_with_kl(seen: probes.Seen) -> Tensor:
    return by_hand.grpo_loss(seen) + 0.01 * by_hand.mean_of_decisions(by_hand.k3(seen), seen.experience)


DIGITS = {"01": "format-0", "49": "format-0", "5": "format-1", "70": "format-1", "8": "format-2", "99": "format-2"}
"""Answers of the testbed and their formats, of which the start uses 5, 3 and 2 tenths."""


ALONE = recipe(BIGRAMS)


WITH_KL = recipe(BIGRAMS, 0.1)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is grpo's", recipe, by_hand.grpo_loss),
        same_gradient("with the KL its gradient is that of grpo plus 0.01 k3", ANCHORED, loss_with_kl),
        Exact("answers of each format are counted", lambda: probes.mode_gap(recipe(), SCRIPT), at_most=1e-9),
        Exact("on a task that says its formats, those are counted",
              lambda: probes.mode_gap(recipe(), DIGITS, formats()), at_most=1e-9, of="formats"),
        Exact("a task without text is refused", lambda: probes.is_refused(recipe(), BANDIT), equals=1.0, of="refusals"),
        Measured("each prompt ends with 0.8 of its answers in one format", "formats", ALONE, 0.8, Final("own_share"),
                 seeds=10, minutes=4.0, steps=100, looks=2, about=About.HEADLINE),
        Measured("the KL to the start leaves more of the mixture", "formats", ALONE, WITH_KL, Final("own_share"),
                 seeds=10, minutes=6.0, steps=100, looks=2, about=About.COMPONENT),
    ),
    mutants=(
        Edit("a part of the answer is enough", CountModes.mode_of, "re.fullmatch", "re.search"),
        Edit("garbage is text", CountModes.mode_of, "next(found, OTHER)", "next(found, list(self.modes)[-1])"),
        Edit("a dot stops at a newline", CountModes.mode_of, ", re.DOTALL", ""),
        Edit("only right answers are classified", CountModes.apply, "len(own), len(found)", "sum(own), len(found)"),
    ),
)
