"""echo-chamber: grpo on correctness alone, with the share and the score of every answer format logged at each step.

    d logit_m = s_m (a_m - mean a),   s_m the share of format m, a_m its accuracy, mean a = sum_m s_m a_m

Zhao et al. 2025. Nothing is paid for a format, but a format that is right more often than the mean grows at the cost of
the others, until one is left: training amplifies what the start does. A KL term to the start keeps more of the mixture.
Expert iteration, maximum likelihood of the different right answers, does so too: s_m <- s_m a_m / mean a where texts do
not repeat. `pretrained` begins with maximum likelihood of the task's demonstrations, a mixture whose shares are known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch

from assay.method import LANGUAGE, AnswerFormat, Experience, Method, Phase, Prepare, Preset, Recipe, Scene, State
from assay.method import groups, recipes, with_policy, with_regularizers
from assay.parts import CountModes, FreshSequences, KlToReference, LogLikelihood

Modes = Mapping[str, str] | Callable[[AnswerFormat], Mapping[str, str]]


FORMATS: Mapping[str, str] = {"function": r"\s*def \w+\(.*", "code": r".*<llm-code>.*</llm-code>.*", "text": r".*\w.*"}
"""The paper's three: a Python function, code between tags, and text; `other` is what has no word."""


def formats_of(answers: AnswerFormat) -> Mapping[str, str]:
    """Returns the task's own classes of answers, the paper's where it declares none."""
    return dict(answers.modes) or FORMATS


def recipe(preset: Preset = LANGUAGE, kl: float = 0.0, modes: Modes = formats_of) -> Recipe:
    """Returns grpo that counts the modes of answers; `kl` adds a penalty towards the start."""
    base = recipes.grpo(preset)
    counted = replace(base, name="echo-chamber", credit=(CountModes(modes), *base.credit))
    return with_regularizers(counted, KlToReference(kl)) if kl else counted


ANCHORED = partial(recipe, kl=0.01)


@dataclass(frozen=True)
class KeepRight(Prepare):
    """Keeps right answers alone in the mask, and with `once` the first of those with the same decisions in a group.

    Right is an outcome above 1/2. Logs `kept`, the share of rows. Without duplicates a wordy format counts as often as
    its different texts, a terse one once. Degenerate: a group without a right answer keeps nothing.
    """

    once: bool = True
    reads_shares: ClassVar[bool] = True

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `mask`."""
        mask, label = experience.mask, groups.row_groups(experience).index.tolist()
        kept, seen = groups.is_right(experience) & mask.any(1), set[tuple[int, ...]]()
        for row in kept.nonzero().flatten().tolist() if self.once else ():
            told = (label[row], *experience.action[row][mask[row]].flatten().tolist())
            kept[row] = told not in seen
            seen.add(told)
        scene.log("kept", float(kept.sum()), float(mask.any(1).sum()))
        return replace(experience, mask=mask & kept.unsqueeze(1))


def expert(preset: Preset = LANGUAGE, modes: Modes = formats_of, once: bool = True) -> Recipe:
    """Expert iteration: each step samples 64 answers to a prompt and fits the different right ones, twice."""
    base = with_policy(recipes.group_reinforce(preset), "echo-chamber-expert", LogLikelihood())
    sampled = base.set("rollout.num_starts", 8).set("rollout.group_size", 64)
    return replace(sampled, credit=(CountModes(modes), KeepRight(once)), source=FreshSequences(epochs=2))


def pretrained(preset: Preset = LANGUAGE, steps: int = 200) -> Recipe:
    """Begins with maximum likelihood of demonstrations: the mixture of formats that they have."""
    first = recipes.sft(preset)
    first = replace(first, stages=(replace(first.stages[0], optimizer=preset.optimizer),))
    return replace(recipe(preset), before=(Phase("mixture", first, steps),))


METHOD = Method(
    paper="arXiv:2504.07912",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="formats",
    family="policy gradient",
    base=recipes.grpo,
    variants={"echo-chamber-kl": ANCHORED, "echo-chamber-expert": expert, "echo-chamber-mixture": pretrained},
    departures=(
        "classes are a grammar with an explicit `other`; the authors' test for substrings counts Definitely as code",
        "grpo and expert iteration, no ppo; a testbed's start has the shares that its task says (formats:shares=532), "
        "and after pre-training those of the demonstrations (formats:mixture=262, or a file's)",
        "a round of expert iteration is one step on 8 prompts and goes on from the last weights, which the authors "
        "call online; theirs has all prompts and begins again at the pre-trained weights; no top-p of 0.95",
        "temperature 1 and one update a batch; theirs is 0.7 and eight updates",
        "not measured: when the share is reached, and other widths; a table of tokens has no width",
    ),
    pilots=("the bound 0.8 was set after a pilot of 0.92; KL weights 0.1 and 0.3 were tried (0.77, 0.63; 2 seeds)",),
    results=(
        "on the testbed each prompt ends in a format of its own: the largest share of all was 0.63 with rank 16 "
        "and 0.78 with rank 4 (2 pilot seeds each), so the claims are about each prompt's largest share",
    ),
)
