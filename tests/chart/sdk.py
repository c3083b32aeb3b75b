"""Helm 4 in a process of its own: requests as lines of JSON, in the same way answered.

Its library brings Go's threads and signal handlers, which the other tests of a process must not get.
"""

from __future__ import annotations

import json
import sys
from functools import cache
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


DOES = {does.__name__: does for does in (render, lint, install, upgrade, test, uninstall)}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": DOES[request["do"]](*request["with"])}
    except HelmError as failed:
        return {"error": str(failed)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
