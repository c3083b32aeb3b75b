"""Images, by name: what each says of the environment. The files of all are this machine's."""

from __future__ import annotations

from collections.abc import Mapping

Images = Mapping[str, Mapping[str, str]]


class NotPulled(Exception):
    """The image cannot be had, in containerd's words."""


def pulled(images: Images, name: str) -> Mapping[str, str]:
    """Raises NotPulled."""
    if name not in images:
        raise NotPulled(
            f'failed to pull and unpack image "{name}": failed to resolve reference "{name}": {name}: not found'
        )
    return images[name]
