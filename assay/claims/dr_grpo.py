"""Claims of dr-grpo: its loss by hand, exact and measured claims, mutants."""

from dataclasses import dataclass
from typing import Any

from assay.claims import About, Claims, Edit, Expect, Measured, by_hand, probes, same_gradient, sampled
from assay.method import Task, recipes


@dataclass(frozen=True)
class WrongLength:
    """Mean characters of wrong answers to held-out prompts, from `samples` of each; 0 if none is wrong."""

    samples: int = 8
    prompts: int = 256

    def of(self, policy: Any, task: Task) -> float:
        """Returns the mean over all wrong answers."""
        right, texts = sampled(policy, task, self.prompts, self.samples)
        said = [text for of_prompt in texts for text in of_prompt]
        lengths = [len(text) for good, text in zip(right.flatten(), said, strict=True) if not good]
        return sum(lengths) / max(1, len(lengths))


CLAIMS = Claims(
    claims=(
        same_gradient("off-policy its gradient is the formula's", recipes.dr_grpo, by_hand.dr_grpo_loss,
                      probes.off_policy(num=128)),
        Measured("it scores like grpo after 100 steps", "sorting-5", recipes.dr_grpo(), recipes.grpo(),
                 expect=Expect.WITHIN, margin=0.1, seeds=5, minutes=4.0, steps=100, warmup=60, about=About.MECHANISM),
        Measured("where the length of an answer helps nothing its wrong answers are shorter than grpo's", "thinking-12",
                 recipes.dr_grpo(), recipes.grpo(), WrongLength(), Expect.BELOW, seeds=5, minutes=10.0, steps=60,
                 warmup=60, about=About.HEADLINE),
        Measured("where the length of an answer helps nothing its held-out score is at most 0.05 below grpo's",
                 "thinking-12", recipes.dr_grpo(), recipes.grpo(), margin=-0.05, seeds=5, minutes=10.0, steps=60,
                 warmup=60, about=About.HEADLINE),
    ),
    mutants=(
        Edit("the leave-one-out mean", recipes.dr_grpo, "GroupMean()", "LeaveOneOut()"),
        Edit("a higher upper clip", recipes.dr_grpo, "Clip(0.2, 0.2)", "Clip(0.2, 0.28)"),
        Edit("no clip", recipes.dr_grpo, "Clip(0.2, 0.2)", "NoTrust()"),
        Edit("a mean over tokens", recipes.dr_grpo, "FixedLength(length)", "TokenMean()"),
    ),
)
