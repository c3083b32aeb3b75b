"""Helm 4 in a process of its own: requests as lines of JSON, in the same way answered.

Its library brings Go's threads and signal handlers, which the other tests of a process must not get.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import cache, reduce
from itertools import zip_longest
from typing import Any

import helm_python
from helm_python import Chart, Config, HelmError


@cache
def chart(path: str) -> Chart:
    return Chart.load(path)


@cache
def config(kubeconfig: str, namespace: str) -> Config:
    # Releases in memory: Helm 4 would send its own Secrets as protobuf, which the tests' server does not read.
    return Config(kubeconfig_path=kubeconfig, namespace=namespace, storage_driver="memory")


def file_values(place: str, names: list[str]) -> Any:
    """Where several files have a value, that of the last one."""
    read = []
    for name in names:
        with open(os.path.join(place, name), encoding="utf-8") as file:
            read.append(helm_python.values_from_yaml(file.read()))
    return reduce(merged, read)


def typed_values(parse: Callable[[str], Any]) -> Callable[[str, list[str]], Any]:
    """Several flags of one kind are read as one."""
    return lambda place, expressions: parse(",".join(expressions))


def contents(place: str, expressions: list[str]) -> Any:
    pairs = [expression.split("=", 1) for expression in expressions]
    return helm_python.parse_set_file(",".join(f"{key}={os.path.join(place, name)}" for key, name in pairs))


KINDS: dict[str, Callable[[str, list[str]], Any]] = {
    "-f": file_values,
    "--set": typed_values(helm_python.parse_set_string),
    "--set-string": typed_values(helm_python.parse_set_string_values),
    "--set-file": contents,
}
"""In the order in which Helm takes them, whatever the order in which they were typed."""


def merged(base: Any, over: Any, typed: str = "", key: str = "") -> Any:
    """Items that were typed by number, as in key[2]=1, take the places of single ones; another list replaces all."""
    if isinstance(base, list) and isinstance(over, list) and f"{key}[" in typed:
        return [was if item is None else merged(was, item, typed) for was, item in zip_longest(base, over)]
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{inner: merged(base.get(inner), value, typed, inner) for inner, value in over.items()}}
    return over


def values(place: str, flags: list[str]) -> Any:
    """What the flags say."""
    given = list(zip(flags[::2], flags[1::2], strict=True))
    assert {word for word, _ in given} <= set(KINDS), flags
    found: Any = {}
    for kind, read in KINDS.items():
        if texts := [text for word, text in given if word == kind]:
            found = merged(found, read(place, texts), ",".join(texts))
    return found


def render(path: str, values: Any, name: str, namespace: str) -> Any:
    chart(path).validate_schema(values)
    return chart(path).render(values, name=name, namespace=namespace, is_install=True)


def lint(path: str, values: Any) -> Any:
    return helm_python.lint(path, values, strict=True, namespace="default")


def of_release(verb: str, kubeconfig: str, namespace: str, name: str, *made_of: Any) -> Any:
    """`install` and `upgrade` make it of a chart and values."""
    given = (chart(made_of[0]), name, made_of[1]) if made_of else (name,)
    return getattr(config(kubeconfig, namespace), verb)(*given, timeout=100)


DOES = {does.__name__: does for does in (values, render, lint, of_release)}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": DOES[request["do"]](*request["with"])}
    except HelmError as failed:
        return {"error": str(failed)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
