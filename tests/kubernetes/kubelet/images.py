"""Images, by name: each is a root file system, with what an image says of its environment and command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Image:
    root: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Over the root: path in the container → path on this machine."""


class NotPulled(Exception):
    """The image cannot be had, in containerd's words."""


def pulled(images: Mapping[str, Image], name: str) -> Image:
    """Raises NotPulled."""
    if name not in images:
        repository, _, tag = name.rpartition(":")
        raise NotPulled(
            f'failed to pull and unpack image "{name}": failed to resolve reference "{name}": '
            f"{repository}:{tag}: not found"
        )
    return images[name]


def root(image: Image) -> Path:
    return Path(image.root)
