"""Hooks of mkdocs.yml: the site also has what pages of docs/ link to elsewhere in the repository."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = "docs/"
ELSEWHERE = "repository/"
"""Where the site has what is outside docs/ in the repository."""
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]+)?\)")
PICTURE = re.compile(r"^```mermaid\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add README.md, and what pages lead to outside docs/: Markdown as it is, other files as code."""
    paths = ["README.md", *(DOCS + file.src_uri for file in files.documentation_pages())]
    for path in paths:  # which grows by what each page leads to
        markdown = _markdown(path)
        targets = dict.fromkeys(_target(path, link) for link, _ in LINK.findall(markdown))
        paths += [one for one in targets if one and not one.startswith(DOCS) and one not in paths]
        if not path.startswith(DOCS):
            files.append(File.generated(config, _place(path), content=markdown))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with links that are right on the site, and with its diagrams as pictures."""
    path = _path(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        target = _target(path, link[1])
        there = os.path.relpath(_place(target), Path(page.file.src_uri).parent) if target else link[1]
        return f"]({there}{link[2] or ''})"

    return PICTURE.sub(_picture, LINK.sub(moved, markdown))


def _path(uri: str) -> str:
    """Where a page of the site is in the repository."""
    return uri.removeprefix(ELSEWHERE) if uri.startswith(ELSEWHERE) else DOCS + uri


def _place(path: str) -> str:
    """Where a file of the repository is among the sources of the site."""
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return ELSEWHERE + (path if path.endswith(".md") else f"{path}.md")


def _target(path: str, link: str) -> str:
    """What a link of that page leads to in the repository, of a directory its README.md; empty where nothing is."""
    target = os.path.normpath(os.path.join(os.path.dirname(path), link))
    if (ROOT / target).is_dir():
        return f"{target}/README.md"
    return target if (ROOT / target).exists() else ""


def _markdown(path: str) -> str:
    """A file as a page; of a directory without README.md, the list of its files."""
    file = ROOT / path
    if file.suffix == ".md" and file.exists():
        return file.read_text()
    if file.suffix == ".md":
        names = sorted(one.name for one in file.parent.iterdir() if one.is_file())
        return f"# {file.parent.relative_to(ROOT)}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)
    hidden = "---\nsearch:\n  exclude: true\n---\n"
    return f"{hidden}# {path}\n\n~~~~ {file.suffix.removeprefix('.')}\n{file.read_text()}~~~~\n"


def _picture(block: re.Match[str]) -> str:
    """A diagram as SVG, in the color of the text. Mermaid would be a script from another host."""
    arrows = re.sub(r"(\S+) --> (\S+)", r'"\1" -> "\2"', block[1].partition("\n")[2])
    graph = f'digraph {{ bgcolor=none node [shape=box fontname="sans-serif" fontsize=12]\n{arrows}}}'
    try:
        drawn = subprocess.run(["dot", "-Tsvg"], input=graph, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise PluginError("dot, which draws the diagrams, is missing: make docs installs it (graphviz)") from None
    drawn = drawn.replace('"black"', '"currentColor"').replace("<text", '<text fill="currentColor"')
    return f"<div>{drawn[drawn.index('<svg') :]}</div>\n"
