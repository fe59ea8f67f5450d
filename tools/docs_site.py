"""Makes the pages of the site that are not written by hand, and moves links: a hook of MkDocs (see mkdocs.yml).

`make docs` builds the site.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from tools import docs_api, docs_commands, docs_links, docs_methods

SHIM = re.compile(r"https://[\w.]+/iframe-worker/shim")
"""Where the theme loads the worker for pages on the disk from."""
COMMANDS = re.compile(r'<div class="language-(?:bash|sh) .*?</div>', re.S)
"""Blocks of commands on a page."""
INDENTED = re.compile(r"(?<=\n\n)(?:    assay .*\n)+(?=\n|\Z)")
"""Commands that stand in a page as an indented block."""
OPTION = re.compile(r"(?<=[\s>])(--[a-z][a-z-]*)(?![^<]*>)")
INLINE = re.compile(r"<code>([^<]*)</code>")
"""Code in a sentence or a cell."""
MADE = "<!-- made: laws -->"
"""Where a written page has the generated table of laws."""


def generated() -> dict[str, str]:
    """Returns every generated page by its path on the site."""
    made = (docs_links.source_pages, docs_links.top_pages, docs_methods.pages, docs_api.pages, docs_commands.pages)
    return {page: text for pages in made for page, text in pages().items()}


def on_config(config: Any) -> Any:
    """Puts the generated pages into the navigation."""
    filled = {"methods/": docs_methods.navigation(), "api/": docs_api.navigation()}
    for entry in config["nav"]:
        for title, value in entry.items():
            entry[title] = filled.get(value, value) if isinstance(value, str) else value
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the generated pages."""
    from mkdocs.structure.files import File

    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Moves the links of a written page from the checkout to the site."""
    if page.file.generated_by is not None:
        return markdown
    if MADE in markdown:
        markdown = markdown.replace(MADE, docs_api.laws_table())
    return docs_links.for_site(fenced(markdown), f"docs/{page.file.src_uri}", page.file.src_uri)


def fenced(markdown: str) -> str:
    """Returns the page with indented commands as a block of a shell, which is wrapped on a narrow page."""
    return INDENTED.sub(lambda found: f"```sh\n{re.sub('^    ', '', found[0], flags=re.M)}```\n", markdown)


def breakable(code: str) -> str:
    """Returns code in a line with whole options, and with places to break in lists, settings and names of tests."""
    if "::" in code:
        return code.replace("::", "::<wbr>").replace("_", "_<wbr>").replace("/", "/<wbr>")
    code = re.sub(r"([,=])(?=[^\s<])", r"\1<wbr>", code)
    return OPTION.sub(r'<span class="option">\1</span>', f" {code}")[1:]


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Replaces the theme's address of its worker for pages on the disk by a script of the site. Keeps the options of
    commands whole: a browser may break a line after any hyphen.
    """
    output = COMMANDS.sub(lambda block: OPTION.sub(r'<span class="option">\1</span>', block[0]), output)
    output = INLINE.sub(lambda code: f"<code>{breakable(code[1])}</code>", output)
    return SHIM.sub(posixpath.relpath("assets/worker.js", posixpath.dirname(page.url) or "."), output)
