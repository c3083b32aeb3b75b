#!/usr/bin/env python3
"""Print how much code there is, how much of it explains itself, and how many functions are mere names.

    scripts/code_figures.py [-v] [DIRECTORY ...]     agent and entrypoints, unless others are named

Code lines are those without comments, docstrings and blanks. A private function counts as a mere name when its body has
at most two statements and the one file that has it mentions it once. A function hands on when all it does is to call
another with what it was given; calls are followed by name, which may take two functions of one name for one. Where
there are tests, their cases are counted as pytest collects them. -v lists what was counted, and files of more than 350
lines.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeGuard

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES = 350
MOST_STATEMENTS = 2
SMALL_LINES = 30
DENSEST = 5
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


def class_names(trees: Mapping[Path, ast.AST]) -> dict[str, list[Path]]:
    """Names of classes that are in two files or more."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path, tree in trees.items():
        for name in {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}:
            found[name].append(path)
    return {name: paths for name, paths in sorted(found.items()) if len(paths) > 1}


def seconds_constants(tree: ast.Module) -> list[str]:
    """Constants of a module whose names end in SECONDS."""
    found = []
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        found += [name.id for name in names if name.id.endswith("SECONDS")]
    return found


def inner_imports(tree: ast.AST) -> list[str]:
    """Import statements in functions, each with its line."""
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found = {node.lineno: ast.unparse(node) for function in functions for node in ast.walk(function) if _imports(node)}
    return [f"{line}: {text}" for line, text in sorted(found.items())]


def _imports(node: ast.AST) -> TypeGuard[ast.Import | ast.ImportFrom]:
    return isinstance(node, (ast.Import, ast.ImportFrom))


class Density(NamedTuple):
    """How much one class holds."""

    methods: int
    fields: int
    name: str


def density(tree: ast.AST) -> list[Density]:
    """Every class; its fields are those of its body and the attributes that its methods give to `self`."""
    return [_density(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def _density(node: ast.ClassDef) -> Density:
    methods = [one for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    fields = {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
    for method in methods:
        for one in ast.walk(method):
            match one:
                case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                    fields.add(one.attr)
    return Density(len(methods), len(fields), node.name)


def hands_on(function: ast.FunctionDef) -> str:
    """The function that this one only calls, with what it was given and nothing else; empty: it does more."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    match body:
        case [ast.Expr(value=ast.Call() as call)] | [ast.Return(value=ast.Call() as call)]:
            given = {one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
            passed = [*call.args, *(keyword.value for keyword in call.keywords)]
            if given - {"self", "cls"} == {one.id for one in passed if isinstance(one, ast.Name)} and len(
                passed
            ) == sum(isinstance(one, ast.Name) for one in passed):
                return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    return ""


def chains(trees: Iterable[ast.AST]) -> list[list[str]]:
    """Functions that hand on to each other, the longest chains first."""
    to: dict[str, set[str]] = defaultdict(set)
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and (called := hands_on(node)) and called != node.name:
                to[node.name].add(called)

    def longest(name: str, seen: tuple[str, ...]) -> list[str]:
        after = [longest(one, (*seen, name)) for one in to.get(name, ()) if one not in seen]
        return [name, *max(after, key=len, default=[])]

    return sorted((longest(name, ()) for name in to), key=lambda chain: (-len(chain), chain))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="list what was counted")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout (default: this one)")
    parser.add_argument("directories", nargs="*", default=["agent", "entrypoints"])
    options = parser.parse_args()
    files = [path for name in options.directories for path in sorted((options.root / name).rglob("*.py"))]
    texts = {path.relative_to(options.root): path.read_text() for path in files}
    counted, listed = report(texts)
    if tests := [str(path) for path in texts if path.name.startswith("test_")]:
        counted.insert(1, cases(options.root, tests))
    print("\n".join([*counted, *(listed if options.verbose else [])]))


def cases(root: Path, files: list[str]) -> str:
    """How many test cases pytest collects in these files."""
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", *files]
    done = subprocess.run(argv, cwd=root, stdout=subprocess.PIPE, text=True)
    found = [int(count) for count in re.findall(r"^\S+\.py: (\d+)$", done.stdout, re.MULTILINE)]
    return (
        f"{sum(found)} test cases"
        if done.returncode == 0
        else f"test cases not counted: pytest ended with {done.returncode}"
    )


def report(texts: Mapping[Path, str]) -> tuple[list[str], list[str]]:
    """The figures, a line each, and what was counted."""
    all_figures = {path: figures(text) for path, text in texts.items()}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    code = sum(each.code for each in all_figures.values())
    words = sum(each.words for each in all_figures.values())
    mere = [f"{path}:{name}" for path, each in all_figures.items() for name in each.mere_names]
    long = [f"{path}: {each.lines} lines" for path, each in all_figures.items() if each.lines > MOST_LINES]
    small = [path for path, each in all_figures.items() if each.lines <= SMALL_LINES and path.name != "__init__.py"]
    names = class_names(trees)
    seconds = [f"{path}: {name}" for path, tree in trees.items() for name in seconds_constants(tree)]
    inner = [f"{path}:{one}" for path, tree in trees.items() for one in inner_imports(tree)]
    classes = sorted(
        (one for tree in trees.values() for one in density(tree)), key=lambda one: -one.methods - one.fields
    )
    dense = [f"{one.name} ({one.methods} methods, {one.fields} fields)" for one in classes]
    handing = chains(trees.values())
    counted = [
        f"{len(texts)} files, {code} lines of code, {len(classes)} classes",
        f"{100 * words / (code + words):.1f} % of lines are docstrings and comments",
        f"{len(mere)} private functions of at most {MOST_STATEMENTS} statements are used once",
        f"{len(long)} files have more than {MOST_LINES} lines, {len(small)} modules {SMALL_LINES} or fewer",
        f"{len(names)} names of classes are in two files or more",
        f"{len(seconds)} constants are called …SECONDS",
        f"{len(inner)} imports are in functions",
        f"the densest classes are {', '.join(dense[:DENSEST])}",
        f"{len(handing)} functions only hand on, the longest chain is {' → '.join(handing[0]) if handing else 'none'}",
    ]
    twice = [f"{name}: {', '.join(map(str, paths))}" for name, paths in names.items()]
    return counted, [*long, *mere, *map(str, small), *twice, *seconds, *inner, *(" → ".join(one) for one in handing)]


if __name__ == "__main__":
    main()
