"""Say which packages this Python lacks: check-packages.py NAME=REQUIREMENT …

On stdout one JSON object: of each that is not as required its name and what is there instead. Requirements are those of
pip: "datasets==3.6.0", "torch", "transformers>=4.51,<5".
"""

from __future__ import annotations

import json
import sys
from importlib import metadata

try:
    from packaging.requirements import Requirement
except ImportError:
    from pip._vendor.packaging.requirements import Requirement  # type: ignore[assignment]


def missing(name: str, text: str) -> str:
    """What is there instead; empty when it is as required."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"no {text}"
    if Requirement(text).specifier.contains(version, prereleases=True):
        return ""
    return f"{name} {version}, not {text}"


if __name__ == "__main__":
    found = {name: missing(name, text) for name, text in (word.split("=", 1) for word in sys.argv[1:])}
    print(json.dumps({name: why for name, why in found.items() if why}))
