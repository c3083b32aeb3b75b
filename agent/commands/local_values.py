"""How options of `a4-agent local` become their values."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def cluster_name(text: str) -> str:
    """The name of a cluster: an empty one would mean whichever runs."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty; is a variable of this shell empty?")
    return text


def variable(text: str) -> tuple[str, str]:
    """(name, value) of a variable."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise argparse.ArgumentTypeError(f"NAME=VALUE, not {text!r}")
    return name, value


def directory(text: str) -> tuple[str, str]:
    """(path in the pods, path here) of --mount."""
    here, _, path = text.partition(":")
    here = os.path.abspath(here)
    if not os.path.isdir(here):
        raise argparse.ArgumentTypeError(f"{here} is no directory")
    path = path or here
    if not path.startswith("/"):
        raise argparse.ArgumentTypeError(f"{path!r} is no absolute path in a pod")
    return path, here


def by_pod(parse: Callable[[str], Value]) -> Callable[[str], tuple[int, Value]]:
    """A type of options: the index of a pod, a colon and a value that `parse` reads."""

    def read(text: str) -> tuple[int, Value]:
        index, found, value = text.partition(":")
        if not found or not index.isdigit():
            raise argparse.ArgumentTypeError(f"the index of a pod, a colon and a value, not {text!r}")
        try:
            return int(index), parse(value)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{value!r} is no number") from None

    return read


def metadata(text: str) -> tuple[int | None, str]:
    """(pod, mode); pod None: all of them. Which modes there are is checked with the rest of the cluster."""
    index, found, mode = text.partition(":")
    return (int(index), mode) if found and index.isdigit() else (None, text)
