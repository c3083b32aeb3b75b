"""Copies the files of a directory into a bucket: copy-newer.py SOURCE BUCKET FOLDER

Those that are there, as long and no older, stay. A copy that was interrupted is shorter, and newer than its source. No
symbolic link is followed below SOURCE and BUCKET. Ends with 1 and a line on stderr when something cannot be copied.
"""

from __future__ import annotations

import os
import stat
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python -I leaves it out
from folders import Folder
from stored_files import CHUNK, fill


def copy(source: Folder, target: Folder) -> None:
    for name in sorted(source.names()):
        seen = source.stat(name)
        if stat.S_ISDIR(seen.st_mode):
            with source.enter(name) as below, target.enter(name, make=True) as into:
                copy(below, into)
        elif stat.S_ISREG(seen.st_mode) and not is_kept(seen, target, name):
            with source.open(name) as file:
                fill(target, name, iter(lambda: file.read(CHUNK), b""))


def is_kept(seen: os.stat_result, target: Folder, name: str) -> bool:
    """Whether there is a copy of the file already."""
    try:
        copied = target.stat(name)
    except FileNotFoundError:
        return False
    is_same = stat.S_ISREG(copied.st_mode) and copied.st_size == seen.st_size
    return is_same and copied.st_mtime_ns >= seen.st_mtime_ns


def main(source: str, bucket: str, folder: str) -> None:
    at = Folder(bucket)
    for part in folder.split("/"):
        with at:
            at = at.enter(part, make=True)
    with Folder(source) as below, at:
        copy(below, at)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError) as error:
        sys.exit(str(error))
