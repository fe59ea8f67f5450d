"""dump: a bandit over data sources, rewarded by the size of the advantages that a source gives.

    P(d) = softmax(U_d / 0.1),   U_d = mean |A| of d's last 300 answers + sqrt(2 ln(N + 1) / (n_d + 1));   rest: grpo

Wang et al. 2025. If all answers are correct or all are wrong, |A| is 0 and nothing can be learned; it is largest if
half of them are correct. So the curriculum moves from mastered sources to those that have just become learnable.

Axes: D sources.
"""

from dataclasses import dataclass, replace

import numpy as np

from assay.method import LANGUAGE, AssayError, Curriculum, Experience, Method, Preset, Recipe, Scene, SourcedTask, State
from assay.method import Task, random, recipes


@dataclass(frozen=True)
class SourceBandit(Curriculum):
    """Draws each start's source from softmax(U / temperature), U an upper confidence bound on mean |advantage|.

        U_d = mean of the last `window` |A| of source d + sqrt(2 ln(N + 1) / (n_d + 1))

    n_d counts the sequences of source d so far, N all of them; |A| of a sequence is that of its mean advantage. DUMP
    (arXiv:2504.09710). The sources are the task's, and the starts of each are taken in order. Assumes a credit that
    writes `advantage`. Degenerate: an unseen source has mean 0, so the first draw is uniform; sequences without a
    decision are not counted.
    """

    temperature: float = 0.1
    window: int = 300

    def with_task(self, task: Task) -> "SourceBandit":
        """Returns itself; AssayError if the task has fewer than two sources, when the run is planned."""
        with_sources(task)
        return self

    def init(self, scene: Scene) -> State:
        """Returns for each source the next start, recent |A|, and the number of sequences; AssayError if the task has
        fewer than two sources.
        """
        num = len(with_sources(scene.task).source_names)
        return {"next": [0] * num, "recent": [[] for _ in range(num)], "count": [0] * num}

    def probabilities(self, state: State) -> np.ndarray:
        """Returns the current probability of each source, [D]."""
        count = np.array(state["count"], dtype=np.float64)
        mean = np.array([np.mean(recent) if recent else 0.0 for recent in state["recent"]])
        bound = mean + np.sqrt(2.0 * np.log(max(1.0, count.sum()) + 1.0) / (count + 1.0))
        weight = np.exp((bound - bound.max()) / self.temperature)
        return weight / weight.sum()

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """Returns the next starts of the sources that were drawn."""
        task, num_starts, draw = with_sources(scene.task), scene.num_starts, scene.draw
        begin = sum(state["next"])  # starts drawn so far: another call in the same step draws other numbers
        point = random.uniform(draw.at(8), np.arange(begin, begin + num_starts))
        upper = self.probabilities(state).cumsum()
        source = np.searchsorted(upper, point * upper[-1], side="right").clip(max=len(upper) - 1)
        starts = np.empty(num_starts, dtype=np.int64)
        for index, chosen in enumerate(source.tolist()):
            starts[index] = task.start_in(chosen, state["next"][chosen])
            state["next"][chosen] += 1
        return starts

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Stores |mean advantage| of each sequence under its start's source."""
        mask = experience.mask
        size = (experience.column("advantage") * mask).sum(1).abs() / mask.sum(1).clamp(min=1)
        task, there = with_sources(scene.task), mask.any(1)
        for start, value in zip(experience.column("start")[there].tolist(), size[there].tolist(), strict=True):
            chosen = task.source_of(start)
            state["recent"][chosen] = [*state["recent"][chosen], value][-self.window :]
            state["count"][chosen] += 1


def with_sources(task: Task) -> SourcedTask:
    """Returns the task as one with at least two sources; raises AssayError if it has fewer."""
    names = task.source_names if isinstance(task, SourcedTask) else ()
    if not isinstance(task, SourcedTask) or len(names) < 2:
        told = f"only '{names[0]}'" if names else "none"
        raise AssayError(
            f"SourceBandit chooses between sources, and '{getattr(task, 'name', None)}' has {told}. Add a field "
            "`source` to every row of the file, or use a mixture such as sorting-3-to-8"
        )
    return task


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    """Returns grpo whose prompts come from the source that a bandit chooses."""
    return replace(recipes.grpo(preset), name="dump", curriculum=SourceBandit())


METHOD = Method(
    paper="arXiv:2504.09710",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="sorting-3-to-8",
    family="curriculum",
    base=recipes.grpo,
    departures=(
        "items of a source come in order, each once, instead of at random with replacement",
        "held-out evaluations do not enter the bandit, as they do in the authors' code",
        "counts are of answers, as in the authors' code; no KL to a reference",
        "not measured: a fixed order from easy to hard as a rival, and the area per generated token, for their cost",
    ),
)
