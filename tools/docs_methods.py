"""Writes a page for each method, and their index, from the same facts as `assay show` and `assay list`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.claims import stamps
from assay.claims.find import find_claims
from assay.claims.mutants import trial
from assay.core.difference import ABSENT, Change, brief
from assay.datasets.recorded import sources_of
from assay.recipes.method import FAMILIES, Method
from assay.recipes.presets import CONTINUOUS, CONTROL, LANGUAGE, PREFERENCES, Preset
from assay.report import claims, method_tables, methods, overview
from assay.runs import catalogue, method_index
from tools.docs_figures import interval_figure
from tools.docs_links import DOCS, ROOT, source_block
from tools.docs_text import bullets, capital, code, plain, prose, table

ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")
WORKED = "answers with the steps before the result, such as those of GSM8K"
STEPS = "the steps of a right answer in the field `steps` of each row, or a judge of steps (`--judge URL`)"
NEEDS = {
    **dict.fromkeys(("adcl-egsr", "ghpo", "mixed-cot-rl", "pope", "scope"), WORKED),
    **dict.fromkeys(("capo", "clip-delta", "text2grad"), STEPS),
    "cog-drift": "rows of each problem in several formats, with a field `problem`",
    "longrlvr": "the numbers of the chunks that hold the answer in the field `evidence` of each row",
    "rgr-grpo": "items and weights in the field `rubric` of each row",
    "dr-sci": "items and kinds in the field `rubric`, and a `pass_rate`, of each row",
    "fission-grpo": "what is said of failed answers: a field `feedback` of each row, or a conversation with tools",
    "mrt": "answers whose result follows a mark such as ####, or a thought that ends with one",
    "advantage-alignment-llm": "a game of at least two players",
    "iwocs": "a task with a range of dynamics",
    "lhrm-hgpo": "a task that says with what its answers begin in two modes; its variant `tags` asks a model for them",
    "ota": "a task with goals",
    "router-r1": "experts, which are tools (`--tool FILE.py:CLASS`), and the field `prices` of each row",
    "swe-rl": "the texts of files before and after the true patch in the fields `files` and `fixed` of each row",
    "self-redteam": "a game of several roles",
    "spct-grm": "prompts with `responses` to judge, and the `best` of them",
    "zero-shot-rl": "a task with goals",
    "breeze": "a task with goals",
}
"""Methods that need more of a task than prompts, an environment or a dataset have."""
FIELDS = {
    "alphaalign": ("label", ("harmful", "benign")),
    "dump": ("source", ()),
    "salu": ("label", ("answerable", "unanswerable")),
}
"""The field that a method reads in every line of a file, and its values if they are fixed."""
OPTIONS = {
    "mpo-meta": ("judge", "http://localhost:8000/v1"),
    "open-rs": ("mark", "####"),
    "rlpr": ("mark", "####"),
    "think-rm": ("judge", "http://localhost:8000/v1"),
}
"""The option without which a method refuses a plain file, and an example of its value."""
FORMATS = "language.md" if (DOCS / "language.md").is_file() else "data.md"
"""The page of formats of prompts."""
COSTS = {"fisor", "hc-rlhf", "safe-rl-review", "v-ocbf"}
"""Methods that need costs."""
EXPERTS = {"prefixrl", "rl-plus"}
"""Methods that need demonstrations: answers of a file, or a scripted expert, which Gymnasium environments lack."""


def badge(verdict: str, state: str | None = None) -> str:
    """Returns a verdict as a coloured word, marked if it is stale or its state is unknown."""
    return f'<span class="verdict {verdict.replace(" ", "-")}">{claims.with_state(verdict, state).plain}</span>'


# ---------------------------------------------------------------------------------------------------- one method
def method_page(key: str) -> str:
    """Returns the page of a method."""
    facts, method = methods.method_facts(key), catalogue.find_method(key)[1]
    first, _, rest = facts["text"].partition("\n")
    sections = {
        "Formula": prose(rest.strip("\n")),
        "What it changes": changes_table(methods.changes_of(method), facts["base"]),
        "Run it": run_text(key, method),
        "Claims": claims_text(facts),
        "Departures from the paper": bullets(facts["departs"]) or "None.",
        **{name.title(): bullets(facts[name]) for name in ("results", "pilots") if facts[name]},
        "Variants": variants_text(key, method),
        "Mutants": mutants_text(key, facts["mutants"]),
        "Settings": settings_text(facts),
    }
    head = [f"# {key}", f"<p class='lead'>{capital(first.partition(': ')[2])}</p>", facts_table(facts)]
    body = [f"## {title}\n\n{text}" for title, text in sections.items() if text]
    return "\n\n".join([*head, *body]) + "\n"


def facts_table(facts: Mapping[str, Any]) -> str:
    """Returns paper, family, kinds, default task, names and source of a method."""
    found = ARXIV.fullmatch(facts["paper"])
    path = method_path(facts["name"])
    rows = {
        "paper": f"[{facts['paper']}](https://arxiv.org/abs/{found[1]})" if found else plain(facts["paper"]),
        "family": f"[{facts['family']}](index.md#{anchor(facts['family'])})",
        "kinds of task": ", ".join(facts["kinds"]),
        "default task": code(facts["task"]),
        "studied, not counted": plain(facts["studied"]),
        "also called": ", ".join(map(code, facts["aliases"])),
        "source": f"[{path}](../source/{path}.md)",
    }
    return table(("", ""), [(f"**{name}**", text) for name, text in rows.items() if text])


def source_files(key: str) -> list[Path]:
    """Returns the files of a method, then that of its claims."""
    file = method_index.entries()[catalogue.method_key(key)].file
    own = sorted(file.parent.glob("*.py")) if file.stem == "__init__" else [file]
    return [*own, ROOT / "assay" / "claims" / f"{method_index.stem_of(catalogue.method_key(key))}.py"]


def method_path(key: str) -> str:
    """Returns the path of a method's file or folder from the root, without its ending."""
    return f"assay/methods/{method_index.stem_of(catalogue.method_key(key))}"


def anchor(title: str) -> str:
    """Returns the id of a heading."""
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-")


def changes_table(changes: Sequence[Change] | None, base: str | None) -> str:
    """Returns the difference to the base."""
    if changes is None:
        return "A base: derived from no other recipe."
    if not changes:
        return f"Nothing: the recipe is that of {code(base)}."
    rows = []
    for change in changes:
        cells = ("" if one in (ABSENT, None) else brief(one) for one in (change.before, change.after))
        rows.append((code(change.place), *map(code, cells)))
    title = base_link(base)
    return f"Compared with {title}:\n\n" + table(("where", "before", "after"), rows)


def base_link(base: str | None) -> str:
    """Returns the name of a recipe, linked if it is a method."""
    known = method_index.names().get(str(base).replace("_", "-"))
    return f"[{base}]({known.partition(':')[0]}.md)" if known else code(base)


def variants_text(key: str, method: Method) -> str:
    """Returns what each variant changes in the method."""
    told = []
    for name in method.variants:
        _, variant = catalogue.find_method(f"{key}:{name}")
        told.append(f"### {key}:{name}\n\n{changes_table(methods.changes_of(variant), key)}")
    return "\n\n".join(told)


# ---------------------------------------------------------------------------------------------------- running it
def run_text(key: str, method: Method) -> str:
    """Returns commands: on the default task, then on data of the user, for each kind of task."""
    commands = ["\n".join(("```bash", f"assay train {key}", "```"))]
    for words, command in own_commands(key, method):
        commands.append(f"{words}\n\n```bash\n{command}\n```")
    if key in NEEDS:
        commands.append(f"It needs {NEEDS[key]}, as its default task is.")
    return "\n\n".join(commands)


def own_commands(key: str, method: Method) -> list[tuple[str, str]]:
    """Returns, for each kind of task that a method works on, what is needed and the command."""
    if key in NEEDS:
        return []
    found, kinds = [], {kind.name: kind for kind in method.presets}
    if LANGUAGE.name in kinds and key not in COSTS:
        fields = field_words(*FIELDS[key]) if key in FIELDS else ""
        words = f"On a file of prompts and answers{fields}, with a pretrained model ([formats](../{FORMATS})):"
        option, value = OPTIONS.get(key, ("", ""))
        more = f" --{option} '{value}'" if option else ""
        found.append((words, f"assay train {key} --task your.jsonl --model FOLDER{more}"))
    if PREFERENCES.name in kinds:
        words = "On a file of preference pairs ([format](../preferences.md)):"
        found.append((words, f"assay train {key} --task pairs.jsonl --model FOLDER"))
    control = [kinds[name] for name in (CONTROL.name, CONTINUOUS.name) if name in kinds]
    if control and key not in EXPERTS:
        found += control_commands(key, method, control)
    return found


def field_words(name: str, values: Sequence[str]) -> str:
    """Returns which field a file needs."""
    known = f" ({' or '.join(values)})" if values else ""
    return f" with a field `{name}`{known} in every line"


def control_commands(key: str, method: Method, kinds: Sequence[Preset]) -> list[tuple[str, str]]:
    """Returns the command on an offline dataset, or on an environment for a method that learns from none."""
    kind = "" if len(kinds) > 1 else f" with {'discrete' if kinds[0].discrete else 'continuous'} actions"
    number = num_datasets(method, kinds[0])
    if not number:
        costs = " that reports `info['cost']`" if key in COSTS else ""
        return [(f"On a Gymnasium environment{kind}{costs}:", f"assay train {key} --task YourEnv-v0")]
    costs = ", with costs" if key in COSTS else ""
    words = f"On an offline dataset of an environment{kind}{costs} ([formats](../data.md)):"
    files = ["file.hdf5"] if number == 1 else [f"file{place}.hdf5" for place in range(1, number + 1)]
    return [(words, f"assay train {key} --task YourEnv-v0 {' '.join(f'--data {file}' for file in files)}")]


def num_datasets(method: Method, kind: Preset) -> int:
    """Returns how many offline datasets the recipe of a kind learns from."""
    places = sources_of(method.recipe(kind))
    return max((len(getattr(source, "logs", (1,))) for _, source in places), default=0)


# ---------------------------------------------------------------------------------------------------- claims
def claims_text(facts: Mapping[str, Any]) -> str:
    """Returns the claims with their verdicts and numbers, and a figure for each measured one."""
    verdict = facts["verdict"]
    if verdict is None:
        return "Not measured yet.\n\n" + bullets(f"{one['name']} ({one['kind']})" for one in facts["claims"])
    rows = [
        (
            badge(one["verdict"], facts["states"].get(one["name"])),
            plain(claims.told_name(one, facts["about"])),
            plain(claims.found(one)),
            plain(claims.expected(one)),
        )
        for one in verdict["claims"]
    ]
    machine = verdict.get("machine", {})
    place = f"{machine.get('cores', '?')} cores, {machine.get('machine', '?')}, torch {machine.get('torch', '?')}"
    told = [f"Measured {verdict['made']} on {place}. [How claims are decided](../claims.md)."]
    stale = [one for one, state in facts["states"].items() if state == stamps.STALE]
    if stale:
        words = f"{capital(claims.MEANINGS['stale'])}: `assay claim {facts['name']}` measures again."
        told.append(f'!!! warning "Stale"\n    {words}')
    told.append(table(("verdict", "claim", "found", "expected"), rows))
    known = {one["name"] for one in verdict["claims"]}
    new = [claims.told_name(one, facts["about"]) for one in facts["claims"] if one["name"] not in known]
    told += [f"Stated since, not recorded yet:\n\n{bullets(new)}"] if new else []
    told += [figure(one) for one in verdict["claims"] if one["kind"] == "measured" and "estimate" in one]
    return "\n\n".join(told)


def figure(claim: Mapping[str, Any]) -> str:
    """Returns the figure of a measured claim with its caption."""
    rule = f'<span class="rule">{capital(claim["rule"])}; task {code(claim["task"])}.</span>'
    caption = f"<figcaption>{capital(claim['name'])}. {rule}</figcaption>"
    return f'<figure class="claim" markdown="0">\n{interval_figure(claim)}\n{caption}\n</figure>'


def mutants_text(key: str, kept: Mapping[str, Any] | None) -> str:
    """Returns how many wrong versions the exact claims reject, and what became of the others."""
    if kept is None:
        return f"Not tried in full yet: `assay claim {key} --mutants` does."
    counts = Counter(kept["not_caught"].values())
    named = {"made": kept["made"], trial.CAUGHT: kept["caught"], trial.SURVIVED: kept["survived"]}
    named |= {name: counts.get(name, 0) for name in (trial.EQUIVALENT, trial.STOPPED, trial.NO_EFFECT)}
    words = (
        "Wrong versions of the method, on which its exact claims were run ([rules](../claims.md#mutants)). One that is "
        "not caught survived if it changes a short run, was stopped if that run ends with an error, else has no effect."
    )
    text = f"{words}\n\n{table(list(named), [[str(count) for count in named.values()]])}"
    equivalent = find_claims(key).equivalent
    if equivalent:
        rows = [(code(name), plain(reason)) for name, reason in equivalent.items()]
        text += "\n\n" + table(("equivalent mutant", "why no claim can reject it"), rows)
    return text


def settings_text(facts: Mapping[str, Any]) -> str:
    """Returns every setting with its default, folded."""
    rows = [
        f"    | {code(path)} | {code(json.dumps(value, ensure_ascii=False))} |"
        for path, value in facts["settings"].items()
        if value not in (None, [], {})
    ]
    head = f'??? note "{len(rows)} settings and their defaults"\n\n    | setting | default |\n    | --- | --- |\n'
    kind = facts["kinds"][0]
    words = f"Change one with `--set PATH=VALUE`. Defaults are those of {kind}; a preset or a task may have others."
    return f"{words}\n\n{head}" + "\n".join(rows)


# ---------------------------------------------------------------------------------------------------- index
def index_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the index of methods by family."""
    told = ["# Methods", "## Start with one of these", starts_table(), "## All of them"]
    told += [f"{method_tables.counted(rows)}, the same rows as `assay list --all`.", legend(rows)]
    for family in FAMILIES:
        some = [row for row in rows if row["family"] == family]
        if some:
            told.append(f"## {capital(family)} {{ #{anchor(family)} }}\n\n{family_table(some)}")
    return "\n\n".join(told) + "\n"


def starts_table() -> str:
    """Returns the methods to start with, and what for."""
    lines = [(f"[{one.key}]({one.key}.md)", capital(one.start_for), capital(one.summary)) for one in overview.starts()]
    return table(("method", "for", "what it is"), lines)


def family_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the methods of a family."""
    lines = []
    for row in rows:
        verdict = badge(row["headline"], row["state"]) if row["verdict"] else badge("no verdict")
        letters = "".join(methods.LETTERS[kind] for kind in methods.LETTERS if kind in row["kinds"])
        name, text = f"[{row['name']}]({row['name']}.md)", method_tables.summary(row).plain
        told = f'<span class="wide">{capital(text).replace(chr(10), "<br>")}</span>'
        lines.append((name, told, verdict, letters, method_tables.mutants_of(row).plain))
    return table(("method", "what it is", "verdict", "kinds", "mutants"), lines)


def legend(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the meaning of letters, verdicts and counts."""
    counts = Counter(row["headline"] if row["verdict"] else "no verdict" for row in rows)
    counts["stale"] = sum(row["state"] == stamps.STALE for row in rows)
    lines = [(badge(word), str(counts[word]), text) for word, text in claims.MEANINGS.items() if counts[word]]
    letters = f"**kinds of task**: {methods.LETTERS_IN_WORDS}."
    effect = "**effect**: ours minus theirs of the headline's first claim, 95 % interval; points are percentage points."
    mutants = "**mutants**: wrong versions of the method that its exact claims reject, of those that change a run."
    return "\n\n".join([table(("verdict", "methods", "meaning"), lines), letters, effect, mutants])


# ---------------------------------------------------------------------------------------------------- all of them
def pages() -> dict[str, str]:
    """Returns all pages of methods by their path on the site, their sources included."""
    rows = methods.method_rows()
    made = {"methods/index.md": index_page(rows)}
    for row in rows:
        made[f"methods/{row['name']}.md"] = method_page(row["name"])
        path = method_path(row["name"])
        files = "\n".join(source_block(file) for file in source_files(row["name"]))
        made[f"source/{path}.md"] = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n{files}"
    return made


def navigation() -> list[Any]:
    """Returns the entries of the navigation: the index, then the methods by family."""
    found = catalogue.methods()
    by_family = [(family, sorted(key for key, one in found.items() if one.family == family)) for family in FAMILIES]
    return [
        "methods/index.md",
        *({f"{capital(family)}": [{key: f"methods/{key}.md"} for key in keys]} for family, keys in by_family if keys),
    ]
