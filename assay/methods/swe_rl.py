"""swe-rl: grpo paid by how similar the patch of an answer is to the true one; nothing is run.

    R = -1 if malformed,   else mean over files that either patch changes of ratio(diff, true diff);   rest: grpo
    ratio = 2 M / (characters of both),   M = characters in matching blocks (Ratcliff and Obershelp)

Wei et al. 2025. An answer thinks, then gives search/replace edits. A patch that is nearly right is paid nearly 1, so a
weak start learns from edits that fix nothing yet. Diffs are compared, not files: in a long file a text without any
edit would be similar to the fixed one.

Axes: B rows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import Match, SequenceMatcher, unified_diff
from itertools import accumulate
from typing import Any, ClassVar

import torch

from assay.method import LANGUAGE, AssayError, Experience, Method, Preset, Recipe, Reward, Scene, State, TextTask
from assay.method import recipes
from assay.parts import check_rows, placed

PATH, SEARCH, MIDDLE, REPLACE = "### ", "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"
MALFORMED = -1.0
MOST = 1 << 16
"""Characters to which edits may make a file grow: each can repeat its replacement as often as there are lines."""
WORK = 10_000_000
"""Steps that one comparison may take, about a second: a block costs up to as many as both diffs have pairs of equal
characters, and of "abab..." and "aabaab..." there are hundreds of blocks (4,096 characters took over seven minutes).
"""
LINE = '{"prompt": "...", "answer": "...", "files": {"a.py": "x = 1\\n"}, "fixed": {"a.py": "x = 2\\n"}}'


def between(said: str, opening: str, closing: str) -> str | None:
    """Returns what stands between two tags; None unless each occurs once, in this order."""
    if said.count(opening) != 1 or said.count(closing) != 1:
        return None
    before, _, after = said.partition(opening)
    return None if closing in before else after.partition(closing)[0]


def edits_in(solution: str) -> list[tuple[str, str, str]]:
    """Returns (path, search text, replacement) of each whole block; a path holds until the next one."""
    found, path, part, texts = list[tuple[str, str, str]](), "", -1, list[list[str]]()
    for line in solution.split("\n"):
        sign = line.rstrip()
        if part < 0 and line.startswith(PATH):
            path = sign.removeprefix(PATH).strip()
        elif part < 0 and sign == SEARCH:
            part, texts = 0, [[], []]
        elif part == 0 and sign == MIDDLE:
            part = 1
        elif part == 1 and sign == REPLACE:
            part = -1
            found.append((path, "\n".join(texts[0]), "\n".join(texts[1])))
        elif part >= 0:
            texts[part].append(line)
    return found


def edited(files: Mapping[str, str], edits: Sequence[tuple[str, str, str]]) -> dict[str, str] | None:
    """Returns the files after the edits, in order; None if there are none, or one does not apply.

    Every place where a line begins with the search text is replaced. An edit does not apply without such a place (an
    unknown path is an empty file), if both texts are equal, or if the file grows beyond `MOST` characters.
    """
    found = dict(files)
    for path, old, new in edits:
        text, sought = "\n" + found.get(path, ""), "\n" + old
        times = text.count(sought)
        if not old or old == new or not times:
            return None
        if len(new) > len(old) and len(text) + times * (len(new) - len(old)) > MOST:
            return None
        found[path] = text.replace(sought, "\n" + new)[1:]
    return found if edits else None


def diffs(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Returns the unified diff of each file that changed, with three lines of context, without names of files."""
    pairs = {path: (before.get(path, ""), text) for path, text in after.items() if text != before.get(path, "")}
    return {
        path: "\n".join(list(unified_diff(old.splitlines(), new.splitlines(), lineterm=""))[2:])
        for path, (old, new) in pairs.items()
    }


class Matcher(SequenceMatcher[str]):
    """Matches characters as difflib does, until `WORK` steps are spent; what is left then does not match."""

    def __init__(self, found: str, true: str) -> None:
        super().__init__(None, found, true, autojunk=False)
        counts = Counter(true)
        self.steps, self.left = [0, *accumulate(1 + counts[one] for one in found)], WORK

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Returns the longest match in these ranges; an empty one once the steps are spent."""
        self.left -= self.steps[-1 if ahi is None else ahi] - self.steps[alo]
        return Match(alo, blo, 0) if self.left < 0 else super().find_longest_match(alo, ahi, blo, bhi)


def similarity(found: Mapping[str, str], true: Mapping[str, str], longest: int) -> float:
    """Returns the mean similarity of diffs over all files of either, of their first `longest` characters; 0 for a file
    that one of them leaves alone. Without any file it is 1.
    """
    ratios = [
        Matcher(found[path][:longest], true[path][:longest]).ratio()
        if path in found and path in true
        else 0.0
        for path in {**found, **true}
    ]
    return sum(ratios) / len(ratios) if ratios else 1.0


@dataclass(frozen=True)
class EditSimilarity(Reward):
    """R of each answer, on its last decision; files and fixed files are fields of the prompt's row.

    Malformed is an answer without each tag of `thought` and `solution` once, without a thought, without an edit, or
    with one that does not apply. Metrics: `malformed`, `edit_similarity` of the others, `fixed_exactly`, and
    `diffs_cut`, the share of edits with a diff longer than `longest`: a ratio is quadratic in them. Source:
    arXiv:2502.18449. Degenerate: a row without a decision gets nothing.
    """

    longest: int = 4096
    thought: tuple[str, str] = ("<think>", "</think>")
    solution: tuple[str, str] = ("<solution>", "</solution>")
    not_a_part: ClassVar[str] = "the tasks of the laws have no files: its claims run it"

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise AssayError(f"EditSimilarity.longest is {self.longest}. Use 1 or more characters")

    def init(self, scene: Scene) -> State:
        """Returns an empty state; AssayError for a task whose rows have no files."""
        for row in check_rows(scene.task, "fixed", LINE, "swe-rl compares patches"):
            for field in ("files", "fixed"):
                held = row.get(field)
                if not isinstance(held, Mapping) or not all(isinstance(text, str) for text in held.values()):
                    what = f"the field '{field}' of {str(row['prompt'])[:40]!r} must hold the text of each file"
                    raise AssayError(f"{what}. Write JSON lines such as {LINE}")
            if not diffs(row["files"], row["fixed"]):
                raise AssayError(f"'fixed' of {str(row['prompt'])[:40]!r} changes no line of 'files'. Remove the row")
        return {}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        assert isinstance(scene.task, TextTask), "init refuses other tasks"
        starts, known, found = experience.column("start").tolist(), dict[tuple[int, str], tuple[float, ...]](), []
        for start, row in zip(starts, scene.task.texts(experience, scene.split), strict=True):
            said = (start, str(row["completion"]))
            known[said] = known.get(said) or self.judged(row)
            found.append(known[said])
        worth, is_fixed, is_cut = torch.tensor(found, device=experience.mask.device)[experience.mask.any(1)].T
        is_edit = worth != MALFORMED
        scene.log("edit_similarity", float(worth[is_edit].sum()), float(is_edit.sum()))
        scene.log("diffs_cut", float(is_cut.sum()), float(is_edit.sum()))
        scene.log("fixed_exactly", float(is_fixed.sum()), float(len(is_edit)))
        scene.log("malformed", float((~is_edit).sum()), float(len(is_edit)))
        return placed(experience, torch.tensor([one[0] for one in found], device=experience.mask.device))

    def judged(self, row: Mapping[str, Any]) -> tuple[float, float, float]:
        """Returns R of one answer, whether its files are the fixed ones, and whether a diff is cut."""
        said, files = str(row["completion"]), row["files"]
        thought, solution = (between(said, *tags) for tags in (self.thought, self.solution))
        after = edited(files, edits_in(solution)) if thought and thought.strip() and solution else None
        if after is None:
            return MALFORMED, 0.0, 0.0
        found, true = diffs(files, after), diffs(files, row["fixed"])
        is_cut = max(map(len, (*found.values(), *true.values()))) > self.longest
        return similarity(found, true, self.longest), float(found == true), float(is_cut)


def recipe(preset: Preset = LANGUAGE, longest: int = 4096) -> Recipe:
    """Returns grpo paid by the similarity of patches, of which `longest` characters are compared."""
    return replace(recipes.grpo(preset), name="swe-rl", rewards=(EditSimilarity(longest),))


METHOD = Method(
    paper="arXiv:2502.18449",
    recipe=recipe,
    presets=(LANGUAGE,),
    default_task="repair",
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "a file's first 4,096 characters of each diff are compared, where the paper compares all of them",
        "edits that make a file grow beyond 65,536 characters are malformed",
        "no KL, groups of 8 instead of 16; the 70B model, its pull requests and the pipeline that finds the files to "
        "show are not here: prompts have to show the files and ask for edits in this form",
        "held-out answers are scored by the task's own verifier (of a file of one's own, equality with `answer`), not "
        "by running tests; `fixed_exactly` counts training answers whose files are the true ones",
        "supervised learning on true edits, the paper's rival, is not measured: the testbed's table copies them",
    ),
    results=(
        "among 16 lines it is right in 0.48 of all answers after 120 steps, grpo on exact matches in 0.27; no more "
        "than two of four prompts are solved: once all answers of a group are one near miss (the right line, one wrong "
        "digit: 0.985) nothing tells them apart",
        "among four lines it is undecided: 0.89 and 0.77 (+11 points [-6, +27], ten seeds); about 23 would decide it",
    ),
    pilots=(
        "seeds 100 and 101, 300 steps, 4 and 16 lines: at step 120 of 16 lines 0.26 and 0.49, grpo 0.25 and 0.50",
    ),
)
