"""think-rm: the advantage of a group is the mean verdict of its pairwise matches; no score is fitted.

    A_i = mean_j d_ij / sqrt(sum_ij d_ij^2 / (2 G (G - 1)) + 1e-6),   d_ij = -d_ji: the judge's verdict on i and j
    then grpo's clipped loss, and 1e-4 k3 to the reference;   think-rm:judge trains the judge itself, by grpo

Hong et al. 2025. A judge that compares two answers gives no score of one; a score fitted to its verdicts holds for the
answers that it was fitted to. Where a score explains all verdicts, d_ij = r_i - r_j, the advantage is grpo's.

Axes: B rows, T decisions, G members of a group.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch

from assay.method import LANGUAGE, AssayError, Credit, Experience, Method, Preset, PromptTask, Recipe, Reward, Scene
from assay.method import State, groups, recipes, with_regularizers
from assay.parts import FromFunction, KlToReference, OutcomeJudge, PairwiseJudge, RightRanking, SequenceMean, margins
from assay.parts import on_last_decision


@dataclass(frozen=True)
class PairwiseCredit(Credit):
    """Writes the mean verdict of each episode's matches as the advantage of its decisions (arXiv:2505.16265).

        A_i = mean_j d_ij / sqrt(sum_ij d_ij^2 / (2 G (G - 1)) + epsilon)

    d_ij is the judge's score of i minus that of j if `graded`, else its sign: 1, 0 (a tie) or -1. No score is fitted;
    where one explains all verdicts, d_ij = r_i - r_j, A is (r_i - mean) / std of the group. Rows without a decision are
    in no match. Degenerate: a perfect cycle, a group of ties and a group of one have advantages of 0.
    """

    judge: PairwiseJudge = OutcomeJudge()
    graded: bool = False
    epsilon: float = 1e-6
    centred: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    def init(self, scene: Scene) -> State:
        """Returns no state; refuses a file whose verifier would be the judge: that is grpo."""
        task = scene.task
        is_verified = isinstance(task, PromptTask) and task.num_training > 0 and task.scorer is None
        if is_verified and isinstance(self.judge, OutcomeJudge):
            what = f"think-rm compares answers by a judge, and task '{task.name}' has a verifier of right and wrong"
            raise AssayError(f"{what}: that is grpo. Add --judge URL or --judge FILE.py:NAME, or train grpo")
        return {}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the column `advantage`."""
        scores = self.judge.scores(experience, scene.task)
        of_rows = torch.zeros(len(experience), dtype=torch.float64)
        for rows_G in map(torch.tensor, groups.members(experience)):
            above = margins(scores, rows_G)
            verdict, ordered = above if self.graded else above.sign(), max(len(rows_G) * (len(rows_G) - 1), 1)
            of_rows[rows_G] = verdict.mean(1) / (verdict.square().sum() / (2 * ordered) + self.epsilon).sqrt()
        advantage = groups.over_episode(of_rows.to(experience.reward), experience).unsqueeze(1)
        return experience.add({"advantage": advantage * experience.mask})


@dataclass(frozen=True)
class Refitted(Reward):
    """Rewards each episode by its Bradley-Terry score, fitted to the matches of its own group: the rival that has a
    score, and as fresh a one as the verdicts are.

    P(i beats j) = (1 + d_ij) / 2 = sigmoid(s_i - s_j), by 60 steps of gradient. Assumes margins from -1 to 1.
    Degenerate: a group of one, and a group of ties, has scores of 0.
    """

    judge: PairwiseJudge = OutcomeJudge()
    compares_group: ClassVar[bool] = True

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        scores, value = self.judge.scores(experience, scene.task), experience.reward.new_zeros(len(experience))
        for rows_G in map(torch.tensor, groups.members(experience)):
            won, score = (1.0 + margins(scores, rows_G)) / 2, torch.zeros(len(rows_G), dtype=torch.float64)
            for _ in range(60):
                score = score + 2.0 * (won - (score.unsqueeze(1) - score).sigmoid()).mean(1)
            value[rows_G] = score.to(value)
        return on_last_decision(experience, value)


KL = KlToReference(1e-4, aggregate=SequenceMean())


def recipe(preset: Preset = LANGUAGE, judge: PairwiseJudge = OutcomeJudge(), graded: bool = False) -> Recipe:
    """Returns grpo with the mean of pairwise verdicts as advantage."""
    credit = PairwiseCredit(judge, graded)
    return with_regularizers(replace(recipes.grpo(preset), name="think-rm", credit=(credit,)), KL)


def of_judge(preset: Preset = LANGUAGE) -> Recipe:
    """Trains the judge itself, by grpo: 1 if the best response is strictly first, else 0."""
    reward = FromFunction(RightRanking(wrong=0.0))
    return with_regularizers(replace(recipes.grpo(preset), name="think-rm:judge", rewards=(reward,)), KL)


METHOD = Method(
    paper="arXiv:2505.16265",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="judging",
    family="preference",
    base=recipes.grpo,
    variants={"graded": partial(recipe, graded=True), "judge": of_judge},
    departures=(
        "both orders of a pair are asked and their scores averaged; the released code asks one order",
        "on built-in tasks the judge is a program; with --judge it is a chat model, which may think first, or a "
        " user's function; the judge that is trained here writes scores alone",
        "verdicts are signs or graded; the released binary path divides them by the length of what the judge wrote",
        "judgements are scores alone; there is no warm-up on long traces, and no half reward for a graded verdict",
        "groups and learning rates are the preset's, 8 and 3e-4 instead of 4 and 2e-6",
        "not measured: a judge that thinks against one that does not; none thinks here",
    ),
    pilots=(
        "pilots of the measured claims on seeds 900 to 902; there the refitted score had 0.438, this method 0.443",
    ),
)
