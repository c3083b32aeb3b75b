"""How verbs hand over what they have found: JSON on stdout, or a file that the user names."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Collection, Sequence
from typing import Any

from agent.decide.tables import Cell, render
from agent.errors import DirectoryUnusable
from agent.machine import files


def json_text(data: Any) -> str:
    """Indented: people read it, too."""
    return json.dumps(data, indent=1) + "\n"


def print_json(data: Any) -> None:
    """On stdout."""
    sys.stdout.write(json_text(data))


def terminal_columns() -> int:
    """How wide the terminal is; 0 when stdout is none: then nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def fitted_table(header: Sequence[str], rows: Sequence[Sequence[Cell]], right: Collection[int] = ()) -> str:
    """A table that fits the terminal, if it is shown on one, and says how to see what was cut."""
    whole, fitted = (render(header, rows, right, columns=columns) for columns in (0, terminal_columns()))
    return fitted if fitted == whole else f"{fitted}cut to fit the terminal; add | cat or --json to see all\n"


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
