#!/usr/bin/env python3
"""Print how much code there is, how much of it explains itself, and how many functions are mere names.

    scripts/code_figures.py [-v] [DIRECTORY ...]     agent and entrypoints, unless others are named

Code lines are those without comments, docstrings and blanks. A private function counts as a mere name when its body has
at most two statements and the one file that has it mentions it once. -v lists these, and files of more than 350 lines.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES = 350
MOST_STATEMENTS = 2
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}


class Figures(NamedTuple):
    """What one file has."""

    lines: int
    code: int
    words: int
    """Lines of comments and docstrings."""
    mere_names: list[str]


def figures(text: str) -> Figures:
    """Raises SyntaxError for what is no Python."""
    tree = ast.parse(text)
    documented = {line for node in ast.walk(tree) for line in _docstring_lines(node)}
    comments: set[int] = set()
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    code -= documented
    return Figures(len(text.splitlines()), len(code), len(documented) + len(comments - code), _mere_names(tree, text))


def _docstring_lines(node: ast.AST) -> Iterator[int]:
    """Lines of the texts that stand alone as statements: docstrings, and those of attributes."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _mere_names(tree: ast.AST, text: str) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_") and not node.name.startswith("__"):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            mentions = len(re.findall(rf"\b{node.name}\b", text)) - 1
            if len(body) <= MOST_STATEMENTS and mentions == 1:
                found.append(f"{node.lineno}: {node.name}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="list long files and mere names")
    parser.add_argument("directories", nargs="*", default=["agent", "entrypoints"])
    options = parser.parse_args()
    files = [path for name in options.directories for path in sorted((ROOT / name).rglob("*.py"))]
    all_figures = {path: figures(path.read_text()) for path in files}
    code = sum(each.code for each in all_figures.values())
    words = sum(each.words for each in all_figures.values())
    names = sum(len(each.mere_names) for each in all_figures.values())
    long = [path for path, each in all_figures.items() if each.lines > MOST_LINES]
    print(f"{len(files)} files, {code} lines of code")
    print(f"{100 * words / (code + words):.1f} % of lines are docstrings and comments")
    print(f"{names} private functions of at most {MOST_STATEMENTS} statements are used once")
    print(f"{len(long)} files have more than {MOST_LINES} lines")
    if options.verbose:
        for path in long:
            print(f"{path.relative_to(ROOT)}: {all_figures[path].lines} lines")
        for path, each in all_figures.items():
            for name in each.mere_names:
                print(f"{path.relative_to(ROOT)}:{name}")


if __name__ == "__main__":
    main()
