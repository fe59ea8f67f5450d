"""cog-drift: a problem is asked in its easiest format until its last group is mostly right, then in the next one.

    level(problem) <- level + 1   if the share of right answers of its last `window` groups > 1/2;   rest: grpo

Chen et al. 2026 (Cog-DRIFT). Problems that the start never solves give no signal in their open form. With options or a
part of the answer given they do, and what is learnt there carries over. Problems climb one by one and never fall.
A guesser of four options passes a visit of eight answers with probability 0.027, so that it climbs in the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.method import LANGUAGE, AssayError, Method, Preset, Recipe, Scene, State, recipes, with_pool
from assay.parts import Passes, PoolRule, Visited, in_passes

PROBLEM = "problem"
"""The field whose value the formats of one problem share."""


@dataclass(frozen=True)
class Promoted(PoolRule):
    """Problems in shuffled passes, each in its own format: the next one in the order of the file once the mean share of
    right answers of the last `window` visits of the present one is above `threshold`.

    Prompts with one value of the field `problem` are the formats of a problem, from the easiest to the open one. With
    `opened` all are asked in their last format. Degenerate: a problem with one format stays in it.
    """

    threshold: float = 0.5
    window: int = 1
    opened: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold <= 1.0 or self.window < 1:
            raise AssayError(f"{self}: use a threshold from 0 to 1 and a window of 1 or more visits")

    def init(self, seen: Visited, scene: Scene) -> State:
        """Returns the places of the formats of each problem; AssayError if a prompt has no field `problem`."""
        problems: dict[str, list[int]] = {}
        for place, row in enumerate(seen.facts(scene)):
            if PROBLEM not in row:
                raise AssayError(
                    f"task '{scene.task.name}' has prompts without a field '{PROBLEM}'. Give every row of the .jsonl "
                    f"file prompt, answer and {PROBLEM}, an id that its formats share, in rows from easy to open"
                )
            problems.setdefault(str(row[PROBLEM]), []).append(place)
        return {"next": 0, "formats": list(problems.values())}

    def level(self, formats: Sequence[int], seen: Visited) -> int:
        """Returns the number of the format in which a problem is asked now."""
        if self.opened:
            return len(formats) - 1
        for number, place in enumerate(formats[:-1]):
            last = seen.shares[place][-self.window :]
            if len(last) < self.window or sum(last) / len(last) <= self.threshold:
                return number
        return len(formats) - 1

    def choose(self, seen: Visited, scene: Scene, state: State) -> Sequence[int]:
        formats = state["formats"]
        levels = [self.level(own, seen) for own in formats]
        is_open = [at == len(own) - 1 for at, own in zip(levels, formats, strict=True)]
        scene.log("open_problems", sum(is_open), len(is_open))
        return [formats[one][levels[one]] for one in in_passes(range(len(formats)), scene, state)]


def recipe(preset: Preset = LANGUAGE, rule: Promoted = Promoted()) -> Recipe:
    """Returns grpo on a pool of problems whose format hardens by the rule."""
    return with_pool(recipes.grpo(preset), "cog-drift", rule)


def opened(preset: Preset = LANGUAGE) -> Recipe:
    """The rival: every problem in its open form."""
    return recipe(preset, Promoted(opened=True))


def mixed(preset: Preset = LANGUAGE) -> Recipe:
    """The rival: all formats of all problems, equally often."""
    return with_pool(recipes.grpo(preset), "cog-drift-mixed", Passes())


METHOD = Method(
    paper="arXiv:2604.04767",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="ladder",
    family="curriculum",
    base=recipes.grpo,
    variants={"cog-drift-open": opened, "cog-drift-mixed": mixed},
    departures=(
        "formats come from the task; in the released code a language model writes them: four options, ten, digits "
        "masked, open",
        "the share of right answers decides; the released code adds a bonus of 0.2 for the form, with which a guesser "
        "of four options passes a third of its visits",
        "no KL to the start; options keep their order, unless a file has several rows of a format",
        "of several visits in a batch the last ones decide",
        "the testbed's formats give a part of the answer; options are not measured",
    ),
    pilots=("dials of the testbed were set on 2 pilot seeds: with four digits grpo finds open answers by chance",),
)
