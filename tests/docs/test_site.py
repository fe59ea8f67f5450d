"""The site: links lead somewhere, every page is in the navigation, generated pages say what the package says."""

from __future__ import annotations

import argparse
import importlib
import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.claims.find import find_claims
from assay.claims.records import read_verdict
from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.core.slots import ALONE
from assay.engine.loop import Loop
from assay.report import methods, overview
from assay.runs import catalogue
from assay.runs.options import run_options
from assay.runs.plan import make_plan
from tests.docs.blocks import ROOT
from tests.docs.dry import rows, write_prompts
from tools import docs_api, docs_commands, docs_figures, docs_formulas, docs_links, docs_methods, docs_site, docs_text

yaml = pytest.importorskip("yaml")
OWN = {
    "language": "your.jsonl",
    "preference pairs": "pairs.jsonl",
    "control": "CartPole-v1",
    "continuous control": "Pendulum-v1",
}
"""A plain task of each kind, as users have it."""
PARTS = ("Formula", "What it changes", "Run it", "Claims", "Departures from the paper", "Mutants", "Settings")
"""Parts of the page of every method."""
CLAIM = {
    "name": "a claim", "kind": "measured", "verdict": "holds", "expect": "d > margin", "margin": 0.1, "rule": "...",
    "task": "t", "estimate": 0.3, "low": 0.2, "high": 0.4, "seeds": [0, 1],
}  # fmt: skip


class Loader(yaml.SafeLoader):  # type: ignore[misc,name-defined]
    """Reads mkdocs.yml; tags of Python would stay names."""


def leaves(node: Any) -> list[str]:
    """Returns the pages of a navigation."""
    if isinstance(node, str):
        return [node]
    children = node.values() if isinstance(node, dict) else node
    return [page for child in children for page in leaves(child)]


def navigation() -> list[str]:
    """Returns the pages that mkdocs.yml names."""
    return leaves(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"])


# ---------------------------------------------------------------------------------------------------- written pages
def test_links_lead_to_files_of_the_checkout() -> None:
    broken = [
        (page, one) for page in docs_links.written() for one in docs_links.links_of(page) if not (ROOT / one).exists()
    ]
    assert broken == []


def test_links_to_a_heading_lead_to_one() -> None:
    pattern, broken = re.compile(r"\]\(([\w./-]*\.md)?#([\w-]+)\)"), []
    for page in docs_links.written():
        for target, name in pattern.findall((ROOT / page).read_text()):
            path = ROOT / (docs_links.target_of(page, target) if target else page)
            titles = re.findall(r"^#+ (.*)$", path.read_text(), flags=re.M)
            if name not in {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}:
                broken.append((page, target, name))
    assert broken == []


def test_every_written_page_is_in_the_navigation_once() -> None:
    on_disk = {path.relative_to(docs_links.DOCS).as_posix() for path in docs_links.DOCS.rglob("*.md")}
    assert sorted(on_disk - set(navigation())) == []
    assert len(set(navigation())) == len(navigation())


def test_links_of_the_checkout_become_links_of_the_site() -> None:
    text = "[a](../assay/core/record.py) [b](claims.md#mutants) [c](../GLOSSARY.md) [d](https://example.org/x.md)"
    moved = "[a](source/assay/core/record.py.md) [b](claims.md#mutants) [c](glossary.md) [d](https://example.org/x.md)"
    assert docs_links.for_site(text, "docs/design.md", "design.md") == moved
    assert docs_links.for_site("[a](docs/claims.md)", "GLOSSARY.md", "glossary.md") == "[a](claims.md)"
    fenced = "```python\n[a](../b.py)\n```\n"
    assert docs_links.for_site(fenced, "docs/design.md", "design.md") == fenced


def test_linked_source_has_a_page() -> None:
    pages = docs_links.source_pages()
    assert "class Experience" in pages["source/assay/core/record.py.md"]
    assert "class Reward" in pages["source/assay/core/slots.md"]


# ---------------------------------------------------------------------------------------------------- methods
@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """All pages of methods."""
    return docs_methods.pages()


def test_every_method_has_a_page_in_the_navigation(pages: dict[str, str]) -> None:
    keys = set(catalogue.methods())
    assert {Path(page).stem for page in leaves(docs_methods.navigation())} == keys | {"index"}
    assert {page for page in pages if page.startswith("methods/")} == set(leaves(docs_methods.navigation()))


def test_a_page_holds_what_the_package_says(pages: dict[str, str]) -> None:
    for key, method in catalogue.methods().items():
        page = pages[f"methods/{key}.md"]
        assert [one for one in PARTS if f"\n## {one}\n" not in page] == []
        assert '<div class="formula"' in page, key
        told = (*method.departures, *method.pilots, *method.results)
        assert [one for one in told if docs_text.plain(one) not in page] == []
        assert [one.name for one in find_claims(key).claims if docs_text.plain(one.name) not in page] == []
        verdict = read_verdict(key)
        measured = [one for one in (verdict or {"claims": []})["claims"] if "estimate" in one]
        assert page.count("<svg") == len(measured)
        assert [name for name in method.variants if f"### {key}:{name}" not in page] == []
        assert len(methods.method_facts(key)["settings"]) >= page.count("\n    | <code>") > 0


def test_links_between_pages_of_methods_lead_to_pages(pages: dict[str, str]) -> None:
    for page, text in pages.items():
        for target in docs_links.LINK.findall(re.sub(r"````.*?````", "", text, flags=re.S)):
            path = docs_links.target_of(page, target[0])
            assert path in pages or (docs_links.DOCS / path).exists(), (page, target)


def test_index_has_the_rows_of_the_list_after_those_to_start_with() -> None:
    page = docs_methods.index_page(rows())
    first, _, rest = page.partition("\n## All of them")
    assert rest.count("\n| [") == len(catalogue.methods())
    assert first.count("\n| [") == len(overview.starts()) == 10
    assert all(f"({row['name']}.md)" in page for row in rows())


def test_a_formula_is_typeset_and_prose_is_escaped() -> None:
    text = "A *star*, a_b and x < y | z:\n\n    loss = a * b\n      + c\n\n- one *b*\n- two"
    assert docs_text.prose(text) == (
        "A \\*star\\*, a\\_b and x &lt; y &#124; z:\n\n"
        '<div class="formula" markdown="0"><span>loss = <i>a</i> · <i>b</i></span><span>+ <i>c</i></span></div>\n\n'
        "- one \\*b\\*\n- two"
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A_i <- R_i - 1e-6", "<i>A</i><sub><i>i</i></sub> ← <i>R</i><sub><i>i</i></sub> − 10<sup>−6</sup>"),
        ("pi_old(y_<t)", "<i>π</i><sub>old</sub>(<i>y</i><sub>&lt;<i>t</i></sub>)"),
        ("sum_(i in G) x^(1/|y|)", "∑<sub><i>i</i> in <i>G</i></sub> <i>x</i><sup>1/|<i>y</i>|</sup>"),
        ("Q* of d_ij, L a constant", "<i>Q</i><sup>∗</sup> of <i>d</i><sub><i>ij</i></sub>, <i>L</i> a constant"),
        ("grpo's loss at s' >= e^-1", "grpo’s loss at <i>s</i>′ ≥ <i>e</i><sup>−1</sup>"),
        ("a < b & stop_gradient(x_)", "<i>a</i> &lt; <i>b</i> &amp; stop_gradient(<i>x</i>_)"),
    ],
)
def test_the_signs_of_a_keyboard_become_those_of_mathematics(text: str, wanted: str) -> None:
    assert docs_formulas.typeset(text) == wanted


def test_figure_puts_the_interval_where_its_numbers_are() -> None:
    found = docs_figures.interval_figure(CLAIM)
    ends = [float(x) for x in re.findall(r'class="interval" x1="([\d.]+)" x2="([\d.]+)" y1="26" y2="26"', found)[0]]
    (begin,) = re.findall(r'class="allowed" x="([\d.]+)"', found)
    (dot,) = re.findall(r'cx="([\d.]+)"', found)
    assert float(begin) < ends[0] < float(dot) < ends[1]
    assert float(dot) == pytest.approx(sum(ends) / 2, abs=0.2)
    below = docs_figures.allowed(CLAIM | {"expect": "d < -margin"})
    assert below == (float("-inf"), -0.1)
    assert docs_figures.allowed(CLAIM | {"expect": "-margin <= d <= margin"}) == (-0.1, 0.1)


# ---------------------------------------------------------------------------------------------------- commands
def refused(key: str, task: str) -> str | None:
    """Returns why a method cannot be started on a task, None if it can; its offline dataset is not missed here."""
    try:
        option, value = docs_methods.OPTIONS.get(key, ("", ""))
        plan = make_plan(key, task, options=run_options({option: value} if task.endswith(".jsonl") else {}))
        loop = Loop(plan.recipe, plan.task, seed=0, num_steps=1)
        if key in docs_methods.EXPERTS and not task.endswith(".jsonl"):  # the first rollout asks for demonstrations
            loop.step()
        for phase in plan.recipe.before:
            if phase.task is not None:
                phase.task(ALONE.given(task=plan.task))
    except AssayError as error:
        return None if "offline dataset" in str(error) else str(error)
    return None


def wrong_commands(key: str) -> list[tuple[str, str, str | None]]:
    """Returns the kinds of task for which a page has a command that is refused, or lacks one that works."""
    method = catalogue.find_method(key)[1]
    told = " ".join(command for _, command in docs_methods.own_commands(key, method))
    wrong = []
    for world in [one for one in method.presets if one.name in OWN]:
        is_control = "control" in world.name
        why = refused(key, OWN[world.name])
        if is_control and key in docs_methods.COSTS and (why is None or "costs" in why):
            continue  # Gymnasium's environments have no costs; a user's may
        if is_control and key in docs_methods.EXPERTS:
            continue  # nor a scripted expert; its refusal names datasets, which other methods read
        if (why is None) != (("YourEnv-v0" if is_control else OWN[world.name]) in told):
            wrong.append((key, world.name, why))
    return wrong


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_commands_of_a_page_are_those_that_its_method_accepts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command is named for a kind of task if, and only if, the method starts on a plain task of that kind."""
    pytest.importorskip("gymnasium", reason="the extra 'control' is not installed")
    monkeypatch.chdir(tmp_path)
    write_prompts(Path("pairs.jsonl"))
    for key in catalogue.methods():
        name, values = docs_methods.FIELDS.get(key, ("", ()))
        write_prompts(Path("your.jsonl"), **({name: values or ("a", "b")} if name else {}))
        assert wrong_commands(key) == []


# ---------------------------------------------------------------------------------------------------- API
def test_api_names_exist_once() -> None:
    texts = docs_api.pages()
    blocks = [line for text in texts.values() for line in text.splitlines() if line.startswith("::: ")]
    assert len(set(blocks)) == len(blocks)
    assert set(leaves(docs_api.navigation())) == set(texts)


@pytest.mark.parametrize(
    ("page", "module", "name"),
    [
        ("claims", "claims.claim", "Expect"),
        ("groups", "ops.groups", "row_groups"),
        ("tasks", "tasks.adapters.gymnasium", "environment_task"),
    ],
)
def test_the_api_has_pages_for_what_own_code_imports(page: str, module: str, name: str) -> None:
    assert f"::: assay.{module}\n" in docs_api.pages()[f"api/{page}.md"]
    assert vars(importlib.import_module(f"assay.{module}"))[name].__doc__


def test_every_option_of_training_is_on_the_page_of_the_api() -> None:
    page = docs_api.options_page()
    for group in docs_api.GROUPS:
        assert f"\n## {group.__name__}\n" in page
        assert [one.name for one in fields(group) if f"| {docs_text.code(one.name)} |" not in page] == []
    assert '| <code>max&#95;tokens</code> | <code class="option">--max-tokens</code> |' in page


def test_options_of_commands_are_not_broken_and_links_have_titles() -> None:
    block = (
        '<div class="language-bash highlight"><code><span>a --max-tokens <span class="m">3</span></span></code></div>'
    )
    marked = block.replace("--max-tokens", '<span class="option">--max-tokens</span>')
    page = SimpleNamespace(url="own.html")
    assert docs_site.on_post_page(f"<p>--kl</p>{block}", page, None) == f"<p>--kl</p>{marked}"
    assert docs_site.breakable("--tool-timeout N") == '<span class="option">--tool-timeout</span> N'
    assert docs_site.breakable("a.jsonl=0.7,b.jsonl") == "a.jsonl=<wbr>0.7,<wbr>b.jsonl"
    assert docs_site.breakable("t/a.py::test_b") == "t/<wbr>a.py::<wbr>test_<wbr>b"
    said = docs_site.on_post_page("<td><code>a --b</code></td>", page, None)
    assert said == '<td><code>a <span class="option">--b</span></code></td>'
    moved = docs_links.for_site("see [claims.md](claims.md#mutants)", "docs/design.md", "design.md")
    assert moved == "see [Claims, mutants, ablations](claims.md#mutants)"


def test_columns_stand_with_axes_writers_and_meaning() -> None:
    lines = docs_api.columns_page().splitlines()
    assert "| `clip_range` | BT | `ElasticRange` | how far the ratio may leave 1 |" in lines
    assert "| `row` | B | task or engine | index in the batch: the coordinate of random numbers in a loss |" in lines
    assert all(line.count(" | ") == 3 for line in lines if line.startswith("| "))


def test_indented_commands_are_a_block_of_a_shell() -> None:
    page = "Any is.\n\n    assay train ppo  # one\n    assay check a.py\n\nThen:\n\n    assay: it failed.\n\nThe end.\n"
    told = docs_site.fenced(page)
    assert "Any is.\n\n```sh\nassay train ppo  # one\nassay check a.py\n```\n\nThen:" in told
    assert "\n\n    assay: it failed.\n\n" in told


def test_every_command_and_option_is_on_the_page() -> None:
    (page,) = docs_commands.pages().values()
    assert {"assay train", "assay data make", "assay watch"} <= set(re.findall(r"^## (.*)$", page, flags=re.M))
    assert "<code>--set PART.<wbr>FIELD=<wbr>VALUE</code>" in page
    assert argparse.SUPPRESS not in page, "a former name of an option is hidden"
    assert page.count("<code>--json</code>") == len(list(docs_commands.commands(cli.parser())))


def test_laws_of_every_slot_are_on_the_page() -> None:
    table = docs_api.laws_table()
    assert "| `Reward` | finite;" in table
    assert table.count("\n") > 10
