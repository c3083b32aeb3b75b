"""How verbs hand over what they have found: JSON on stdout, or a file that the user names."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from agent.errors import DirectoryUnusable
from agent.machine import files


def json_text(data: Any) -> str:
    """Indented: people read it, too."""
    return json.dumps(data, indent=1) + "\n"


def print_json(data: Any) -> None:
    """On stdout."""
    sys.stdout.write(json_text(data))


def write_file(path: str, text: str, hint: str = "") -> None:
    """Replace a file as a whole. Raises DirectoryUnusable with the `hint`."""
    path = os.path.abspath(path)
    try:
        # A device or FIFO is written into: put in its place, a file would break it for everyone.
        if os.path.exists(path) and not os.path.isfile(path):
            files.append(path, text.encode())
        else:
            files.write(path, text)
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be written: {error.strerror}", hint) from error
