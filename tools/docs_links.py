"""Links of the documentation: pages, files of the checkout, and where each of them is on the site.

Markdown files link as they do in the checkout (`../assay/core/record.py`, `docs/claims.md`). On the site a page is a
page, and a source file is a page under `source/` with its text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TOP = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "GLOSSARY.md": "glossary.md",
    "README.md": "index.md",
}
"""Files of the root that are pages, and the names of these pages. The index has a text of its own."""
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
NAMED = re.compile(r"\[(?:docs/)?(\w+)\.md\](?=\()")
"""A link whose text is the name of a file."""
FENCE = re.compile(r"^(```.*?^```)", re.M | re.S)
LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml", ".md": "markdown", ".jsonl": "json"}


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Returns the text with `change` applied outside of fenced blocks."""
    return "".join(part if part.startswith("```") else change(part) for part in FENCE.split(text))


def target_of(origin: str, link: str) -> str:
    """Returns the path in the checkout that a link of the file `origin` leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def links_of(origin: str) -> list[str]:
    """Returns the paths in the checkout that a Markdown file links to; links to the web are left out."""
    found: list[str] = []

    def gather(text: str) -> str:
        found.extend(target_of(origin, match[1]) for match in LINK.finditer(text))
        return text

    outside_fences((ROOT / origin).read_text(), gather)
    return found


def page_of(path: str) -> str:
    """Returns the page of the site that shows a path of the checkout."""
    if path in TOP:
        return TOP[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md"


def for_site(text: str, origin: str, page: str) -> str:
    """Returns the text of the file `origin` as the page `page`, its links leading to pages of the site."""

    def moved(match: re.Match[str]) -> str:
        target = page_of(target_of(origin, match[1]))
        return f"]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{match[2] or ''})"

    return outside_fences(text, lambda part: NAMED.sub(titled, LINK.sub(moved, part)))


def titled(match: re.Match[str]) -> str:
    """Returns the text of a link to a page: the page's title where a file of the checkout has its name."""
    file = DOCS / f"{match[1]}.md"
    return f"[{file.read_text().partition(chr(10))[0].removeprefix('# ')}]" if file.is_file() else match[0]


def written() -> list[str]:
    """Returns the Markdown files that are pages, as paths in the checkout."""
    return [*(path.relative_to(ROOT).as_posix() for path in sorted(DOCS.rglob("*.md"))), *TOP]


def source_pages() -> dict[str, str]:
    """Returns the pages of all source files and folders that the written pages link to."""
    linked = {path for origin in written() for path in links_of(origin)}
    shown = sorted(path for path in linked if page_of(path).startswith("source/") and (ROOT / path).exists())
    return {page_of(path): source_page(path) for path in shown}


def source_page(path: str) -> str:
    """Returns a page with the text of a file, or with all modules of a folder; search leaves it out."""
    place = ROOT / path
    files = [place] if place.is_file() else sorted(one for one in place.glob("*.py") if one.stat().st_size)
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n" + "\n".join(map(source_block, files))


def source_block(file: Path) -> str:
    """Returns a file as a code block that names it."""
    language = LANGUAGES.get(file.suffix, "text")
    return f'```` {{ .{language} title="{file.relative_to(ROOT).as_posix()}" }}\n{file.read_text().rstrip()}\n````\n'


def top_pages() -> Mapping[str, str]:
    """Returns the pages made from files of the root."""
    made = {page: ROOT / name for name, page in TOP.items() if page != "index.md"}
    return {page: for_site(path.read_text(), path.name, page) for page, path in made.items()}
