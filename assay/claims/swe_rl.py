"""Patches by hand: what answers with edits are paid, what is malformed, and where near misses lead.

The measured claims are refuted where exact matches are learnt as fast: where the interval of the difference has 0.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

from assay.claims import About, AtEqual, Claims, Edit, Exact, Item, Measured, by_hand, probes, same_gradient, sorting
from assay.claims.testbeds.language.repair import PATH, Repair, repair
from assay.method import PLACES, Recipe, Scene, recipes
from assay.methods.swe_rl import EditSimilarity, Matcher, diffs, edited, edits_in, recipe

BEFORE = "a = 1\nb = 2\nc = 3\nd = 4\n"
TEN = "".join(f"v{number} = 0\n" for number in range(10))
FILES = {"m.py": BEFORE, "n.py": "e = 1\n", "long.py": TEN}
FIXED = {"m.py": BEFORE.replace("2", "5")}
TASK = probes.listed(
    Item("q", "7", "7", {"files": FILES, "fixed": FIXED}),
    Item("p", "8", "8", {"files": FILES, "fixed": {"long.py": TEN.replace("v5 = 0", "v5 = 1"), "new.py": "x\n"}}),
)
TRUE = "@@ -1,4 +1,4 @@\n a = 1\n-b = 2\n+b = 5\n c = 3\n d = 4"
SIX = TRUE.replace("5", "6")
NINE = "@@ -1,4 +1,4 @@\n a = 1\n b = 2\n-c = 3\n+c = 9\n d = 4"
BOTH = "@@ -1,4 +1,4 @@\n a = 1\n-b = 2\n-c = 3\n+b = 5\n+c = 9\n d = 4"
FIVE = "@@ -3,7 +3,7 @@\n v2 = 0\n v3 = 0\n v4 = 0\n-v5 = 0\n+v5 = 1\n v6 = 0\n v7 = 0\n v8 = 0"
ALL = "@@ -1,10 +1,10 @@\n" + TEN.replace("v", "-v") + TEN.replace("v", "+w")[:-1]


def block(old: str, new: str, path: str = "m.py") -> str:
    """Returns an edit."""
    return f"### {path}\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


def answer(*blocks: str, thought: str = "so") -> str:
    """Returns an answer with these edits."""
    return f"<think>{thought}</think>\n<solution>{''.join(blocks)}</solution>"


def blocks_alike(found: str, true: str) -> int:
    """Returns how many characters are in matching blocks: the longest common text, of equal ones the first in `found`
    and then in `true`, and those before and after it.
    """
    size, i, j, last = 0, 0, 0, [0] * (len(true) + 1)
    for row, one in enumerate(found):
        now = [0] + [last[column] + 1 if one == other else 0 for column, other in enumerate(true)]
        if max(now) > size:
            size = max(now)
            i, j = row + 1 - size, now.index(size) - size
        last = now
    return size and blocks_alike(found[:i], true[:j]) + size + blocks_alike(found[i + size :], true[j + size :])


def alike(found: str, true: str) -> float:
    """Returns the ratio of two texts by hand."""
    return 2.0 * blocks_alike(found, true) / (len(found) + len(true))


RIGHT = answer(block("b = 2", "b = 5"))
TABLE = (
    (RIGHT, 0, 1.0),
    (answer(block("b = 2", "b = 6")), 0, alike(SIX, TRUE)),
    (answer(block("c = 3", "c = 9")), 0, alike(NINE, TRUE)),
    (answer(block("b", "b = 5\n#b")), 0, alike(TRUE.replace("= 5", "= 5\n+#b = 2").replace("+1,4", "+1,5"), TRUE)),
    (answer(block("b = 2", "b = 5"), block("c = 3", "c = 9")), 0, alike(BOTH, TRUE)),
    (answer(block("b = 2", "=2 ")), 0, alike(TRUE.replace("+b = 5", "+=2 "), TRUE)),
    (answer(block("b = 2", "b = 4"), block("b = 4", "b = 5")), 0, 1.0),
    (answer(block("b = 2", "b = 5"), block("e = 1", "e = 2", "n.py")), 0, 0.5),
    (answer(block("e = 1", "e = 2", "n.py")), 0, 0.0),
    (answer(block("b = 2", "b = 4"), block("b = 4", "b = 2")), 0, 0.0),
    (answer(block("v", "w", "long.py")), 1, alike(ALL, FIVE) / 2.0),
    (answer(block("v5 = 0", "v5 = 1", "long.py")), 1, 0.5),
    (answer("text\n", block("b = 2", "b = 5"), "<<<<<<< SEARCH\nd"), 0, 1.0),
    (answer("### m.py\n<<<<<<< SEARCH  \nb = 2\n======= \nb = 5\n>>>>>>> REPLACE\r\n"), 0, 1.0),
    (answer(block("a = 1", "a = 0"), block("b = 2", "b = 5").partition("\n")[2], block("a = 0", "a = 1")), 0, 1.0),
)
"""Answers, their prompts and rewards: right, a near miss, the wrong line, one line more, one edit more, one whose
likeness is not that of the true diff to it, edits in turn, another file, no change in the end, every line, one of two
files, text around edits, spaces after signs, a path that holds."""
MALFORMED = (
    "", "7", RIGHT.replace("<think>", ""), RIGHT.replace("</think>", ""), RIGHT.replace("<solution>", ""),
    RIGHT.replace("</solution>", ""), RIGHT + RIGHT, "</think><think>so" + RIGHT.partition("</think>")[2],
    RIGHT.replace("so</think>", "so</think></think>"), RIGHT + "<solution>",
    answer(block("b = 2", "b = 5"), thought=" \n"), answer(), answer("b = 5"), answer(block("", "b = 5")),
    answer(block("b = 7", "b = 5")), answer(block("b = 2", "b = 2")), answer(block("= 2", "= 5")),
    answer(block("b = 2", "b = 5", "o.py")), answer(block("b = 2", "b = 5"), block("b = 2", "b = 6")),
    answer(block("b = 2", "b = 5").replace("=======\n", "")), answer(block("b = 2", "b = 5").replace(">>>>>>>", ">")),
    answer(*[block("a = 1", "\n".join(["a = 1"] * 11))] * 5), answer(">>>>>>> REPLACE"),
    answer("=======\n>>>>>>> REPLACE"),
)  # fmt: skip
"""Answers that get -1: without a tag, with two, tags in another order, no thought, no edit, no search text, edits that
do not apply, the second of two, half a block, a file that grows tenfold five times."""


def wrong_rewards(ours: Recipe) -> float:
    """Returns how far rewards of edits are from those by hand."""
    return probes.table_gap(ours, TASK, [*TABLE, *((said, 0, -1.0) for said in MALFORMED)])


def gap_of_numbers() -> float:
    """Returns how far ratios by hand are from published numbers, and an unchanged file is from its likeness."""
    found = [alike(SIX, TRUE), alike(NINE, TRUE), SequenceMatcher(None, BEFORE[:-1], FIXED["m.py"][:-1]).ratio()]
    return probes.worst(*(abs(one - two) for one, two in zip(found, (0.98, 0.82, 0.9583), strict=True)))


def gap_of_diffs() -> float:
    """Returns how many diffs of edited files, of which only changed ones have one, are not as written here; and how
    many ratios of cut diffs are not those by hand.
    """
    after = edited(FILES, edits_in(block("b", "b = 5\n#b") + block("v5 = 0", "v5 = 1", "long.py")))
    expected = {"m.py": TRUE.replace("= 5", "= 5\n+#b = 2").replace("+1,4", "+1,5"), "long.py": FIVE}
    wrong = float(after is None or diffs(FILES, after) != expected)
    for cut in (30, 31, 52):
        short = probes.rewarded(recipe(longest=cut), TASK, probes.completed(TASK, [TABLE[2][0]], [0]))
        wrong += not abs(float(short) - alike(NINE[:cut], TRUE[:cut])) <= 1e-6
    return wrong


def gap_of_bounds() -> float:
    """Returns how many of these are not so: a file may grow to 65,536 characters and no further, a comparison take ten
    million steps.
    """
    room = (1 << 16) - len(BEFORE) - 1
    sizes = [edited(FILES, [("m.py", "b", "b" + "." * more)]) is not None for more in (room, room + 1)]
    sizes += [edited({"m.py": "b\n" * 10}, [("m.py", "b", "b" * more)]) is not None for more in (6552, 6553)]
    ratios = [Matcher(one, one).ratio() for one in ("a" * 3161, "a" * 3162)]
    few = Matcher("xay", "bac")  # 4 steps to find the a, and 1 for what stands before it and after it
    spent = few.left, few.ratio(), few.left
    return sum(map(float, (sizes != [True, False] * 2, ratios != [1.0, 0.0], spent[0] - spent[2] != 6)))


def gap_of_metrics(ours: Recipe) -> float:
    """Returns how far metrics of the answers are from their counts; rows that left training do not count."""
    rows = [*TABLE, (answer(), 0, -1.0)]
    told = [said for said, _, _ in rows]
    data = probes.completed(TASK, told + [RIGHT], [start for _, start, _ in rows] + [0], faults=[len(rows)])
    right, mean = [worth == 1.0 for _, _, worth in TABLE], sum(worth for _, _, worth in TABLE) / len(TABLE)
    right[-1] = True
    expected = {"fixed_exactly": sum(right) / len(rows), "malformed": 1 / len(rows), "edit_similarity": mean}
    cuts = [(4096, 0), (len(FIVE), 1), (len(FIVE) - 1, 2)]  # of the diffs of prompt p one is longer
    return probes.worst(
        probes.log_gap(ours.rewards[0], expected, TASK, data),
        *(probes.log_gap(EditSimilarity(cut), {"diffs_cut": num / len(TABLE)}, TASK, data) for cut, num in cuts),
    )


def gap_of_group(ours: Recipe) -> float:
    """Returns how far the advantages of a right answer, a near miss, the wrong line and no edit are from (1, .98, .82,
    -1) less their mean, over their deviation.
    """
    said = [TABLE[0][0], TABLE[1][0], TABLE[2][0], answer()]
    rows, scene = probes.completed(TASK, said, [0] * 4), Scene(TASK)
    for part in ours.rewards:
        rows = part(rows, scene, part.init(scene))
    after = probes.credited(ours, rows.with_columns(group=rows.column("start")))
    found = after.column("advantage").sum(1) / after.mask.sum(1)
    return probes.distance(found, [0.567, 0.54638, 0.38144, -1.49482])


def refusals(ours: Recipe) -> float:
    """Returns how many of five are not refused: no fields, no files, files that are no texts, nothing fixed, a task
    without items of a file; and whether the testbed is.
    """
    facts: tuple[Mapping[str, Any], ...] = (
        {}, {"fixed": FIXED}, {"files": {"m.py": 1}, "fixed": FIXED}, {"files": FILES, "fixed": {"m.py": BEFORE}},
    )  # fmt: skip
    odd = [probes.listed(Item("q", "7", "7", one)) for one in facts]
    accepted = sum(not probes.is_refused(ours, task) for task in (*odd, sorting(3)))
    return float(accepted) + probes.is_refused(ours, repair())


def gap_on_testbed(ours: Recipe) -> float:
    """Returns how many answers on its default task are not paid as by hand: 1 for the true one alone, -1 for a line
    that is not there and for a line as it is.
    """
    task, items = repair(16), Repair(16)
    item = items.item(1, 0)
    place, wrong = items.broken(1)
    files = item.facts["files"]
    assert isinstance(files, dict)
    same = re.findall(r"= (\d+)", files[PATH])[3]
    rows = probes.completed(task, [item.answer, f"{place:02d}{wrong}", f"03{same}", "1600", "9999", "0355"], [1] * 6)
    found = probes.rewarded(ours, task, rows).tolist()
    return float(found[:5] != [1.0, -1.0, -1.0, -1.0, -1.0]) + float(not 0.0 < found[5] < 1.0)


def against_exact(lines: int) -> dict[str, Any]:
    """Returns what a claim that similarity is learnt faster than exact matches measures, among so many lines."""
    equal = AtEqual("pass_rate", reached="decisions_total")
    return {"task": f"repair:lines={lines}", "ours": recipe(PLACES), "theirs": recipes.grpo(PLACES), "metric": equal,
            "seeds": 5, "minutes": 8.0, "steps": 120, "looks": 2}  # fmt: skip


CLAIMS = Claims(
    claims=(
        same_gradient("for given rewards its gradient is grpo's",
                      lambda: replace(recipe(), rewards=()), by_hand.grpo_loss),
        Exact("edits are paid by the likeness of diffs, file by file, and malformed answers get -1",
              lambda: wrong_rewards(recipe()), at_most=1e-6),
        Exact("a near miss gets 0.98, another line 0.82; as a whole text the unchanged file would get 0.96",
              gap_of_numbers, at_most=5e-3, illustrates=True),
        Exact("diffs have three lines of context, for changed files alone, and are cut where that is asked",
              gap_of_diffs, equals=0.0, of="diffs"),
        Exact("files may grow to 65,536 characters, and a comparison takes ten million steps",
              gap_of_bounds, equals=0.0),
        Exact("metrics count answers in training", lambda: gap_of_metrics(recipe()), at_most=1e-6),
        Exact("an answer without an edit is told apart from others far more than a near miss from the right one",
              lambda: gap_of_group(recipe()), at_most=1e-3),
        Exact("on its default task the true edit alone gets 1", lambda: gap_on_testbed(recipe()), equals=0.0,
              of="formats"),
        Exact("tasks without files, and files that are not changed, are refused",
              lambda: refusals(recipe()), equals=0.0, of="refusals"),
        Measured("where one of 16 lines is wrong it is right more often than grpo on exact matches at as many tokens",
                 **against_exact(16), about=About.HEADLINE),
        Measured("where one of 4 lines is wrong it is right more often than grpo on exact matches at as many tokens",
                 **against_exact(4), about=About.MECHANISM),
    ),
    mutants=(
        Edit("whole texts are compared", diffs, '"\\n".join(list(unified_diff(old.splitlines(), new.splitlines(), '
             'lineterm=""))[2:])', "new"),
        Edit("the true diff first", Matcher.__init__, "None, found, true", "None, true, found"),
        Edit("the first place alone", edited, '"\\n" + new)', '"\\n" + new, 1)'),
        Edit("inside of lines too", edited, '"\\n" + old', "old"),
        Edit("a thought may be empty", EditSimilarity.judged, "thought and thought.strip() and solution", "solution"),
    ),
)
