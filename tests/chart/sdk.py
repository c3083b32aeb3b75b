"""Helm 4 in a process of its own: requests as lines of JSON, in the same way answered.

Its library brings Go's threads and signal handlers, which the other tests of a process must not get.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import cache, reduce
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
    """The values of one file: how several are put together is Helm's matter."""
    (name,) = names
    with open(os.path.join(place, name), encoding="utf-8") as file:
        return helm_python.values_from_yaml(file.read())


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


class ListsMeet(Exception):
    """Two kinds of flags have a list at one place, and only Helm knows which items it has then."""


def merged(base: Any, over: Any) -> Any:
    if isinstance(base, list) and isinstance(over, list):
        raise ListsMeet
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: merged(base.get(key), value) for key, value in over.items()}}


def values(place: str, flags: list[str]) -> Any:
    """What the flags say; null where that cannot be told from each kind of them alone."""
    given = list(zip(flags[::2], flags[1::2], strict=True))
    by_kind = {kind: [text for word, text in given if word == kind] for kind in KINDS}
    if {word for word, _ in given} - set(KINDS) or len(by_kind["-f"]) > 1:
        return None
    try:
        return reduce(merged, (KINDS[kind](place, texts) for kind, texts in by_kind.items() if texts), {})
    except ListsMeet:
        return None


def render(path: str, values: Any, name: str, namespace: str) -> Any:
    chart(path).validate_schema(values)
    return chart(path).render(values, name=name, namespace=namespace, is_install=True)


def lint(path: str, values: Any) -> Any:
    return helm_python.lint(path, values, strict=True, namespace="default")


def install(kubeconfig: str, namespace: str, path: str, name: str, values: Any) -> Any:
    return config(kubeconfig, namespace).install(chart(path), name, values, timeout=100)


def upgrade(kubeconfig: str, namespace: str, path: str, name: str, values: Any) -> Any:
    return config(kubeconfig, namespace).upgrade(chart(path), name, values, timeout=100)


def test(kubeconfig: str, namespace: str, name: str) -> Any:
    return config(kubeconfig, namespace).test(name, timeout=100)


def uninstall(kubeconfig: str, namespace: str, name: str) -> Any:
    return config(kubeconfig, namespace).uninstall(name, timeout=100)


DOES = {does.__name__: does for does in (values, render, lint, install, upgrade, test, uninstall)}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": DOES[request["do"]](*request["with"])}
    except HelmError as failed:
        return {"error": str(failed)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
