"""Downloads files by their URLs: python -m agent.machine.downloading DIRECTORY URL …

Each is written to .NAME.part, taken up there after an interruption, and renamed to NAME when it has all its bytes. What
is there under its NAME is not asked for again. On stdout JSON lines: {"total": bytes of all} and at the end, when it
failed, {"code", "what", "hint"}.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any, NamedTuple

from agent.errors import AgentError, DirectoryUnusable, MissingProgram, PeerLost
from agent.machine import files
from agent.machine.patience import retrying
from agent.machine.stored import free_bytes, remove

TRIES = 6
PIECE = 1 << 20
FINAL = (400, 401, 403, 404, 405, 410)
"""Answers that do not change when it is asked again."""


class Wanted(NamedTuple):
    """One file."""

    url: str
    directory: str

    @property
    def name(self) -> str:
        return os.path.basename(urllib.parse.urlsplit(self.url).path)

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"

    @property
    def part(self) -> str:
        return f"{self.directory}/.{self.name}.part"

    @property
    def mark(self) -> str:
        """The file that holds what the server called the version of which the part is."""
        return f"{self.part}.version"


class _Again(Exception):
    """It may work when it is asked again."""


def download(wanted: Wanted, tries: int = TRIES) -> None:
    """Until it is there; given up after so many tries in a row that bring no byte more. Raises AgentError."""

    def say(text: str) -> None:
        sys.stderr.write(f"{wanted.name}: {text}\n")

    try:
        retrying(_Again, tries, say, lambda: size(wanted.part))(_try, wanted)
    except _Again as error:
        raise PeerLost(
            f"{wanted.url}: {error} ({tries} times one after the other)",
            "what was downloaded so far is kept: the next attempt goes on from there",
        ) from None


def _try(wanted: Wanted) -> None:
    there = size(wanted.part)
    version = files.read(wanted.mark) or ""
    headers = {"Range": f"bytes={there}-", "If-Range": version} if there and version else {}
    with asked(wanted.url, headers) as answer:
        said = answer.headers.get("Content-Range", "")
        if answer.status == 416:
            total = there if said == f"bytes */{there}" else -1
        else:
            total = _take(wanted, answer, there if said.startswith(f"bytes {there}-") else 0)
    if total < 0:
        remove(wanted.part)
        raise _Again("the server has another version of it: it is begun anew")
    if size(wanted.part) != total:
        raise _Again(f"the connection ended after {size(wanted.part)} of {total} bytes")
    os.rename(wanted.part, wanted.path)
    remove(wanted.mark)


def _take(wanted: Wanted, answer: http.client.HTTPResponse, begin: int) -> int:
    """Write what comes behind the first `begin` bytes; how many it should be in all."""
    length = length_of(answer)
    check_room(wanted.directory, length or 0)
    with open(wanted.part, "ab") as file:
        file.truncate(begin)  # before the mark, which must never be that of other bytes
        with open(wanted.mark, "w", encoding="utf-8") as mark:
            mark.write(version_of(answer))
        while piece := next_piece(answer):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return size(wanted.part) if length is None else begin + length


def asked(url: str, headers: dict[str, str], method: str = "GET") -> Any:
    """The server's answer. Raises _Again, MissingProgram."""
    # Not compressed: sizes are those of the file.
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", **headers}, method=method)
    try:
        # The timeout is for each read: a connection that is silent for so long counts as broken.
        return urllib.request.urlopen(request, timeout=60.0)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            return error  # nothing comes after what is there
        error.close()
        if error.code in FINAL:
            raise MissingProgram(
                f"{url}: the server answers {error.code} {error.reason}", "is the URL right?"
            ) from None
        raise _Again(f"the server answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Again(str(getattr(error, "reason", "") or error or type(error).__name__)) from None


def next_piece(answer: http.client.HTTPResponse) -> bytes:
    """What has come, without waiting for more; nothing at the end. Raises _Again."""
    try:
        return answer.read1(PIECE)
    except (OSError, http.client.HTTPException) as error:
        raise _Again(str(error) or type(error).__name__) from None


def length_of(answer: http.client.HTTPResponse) -> int | None:
    """How many bytes the answer has; None when it does not say."""
    text = answer.headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def version_of(answer: http.client.HTTPResponse) -> str:
    """What says that it is still the same file; empty: nothing does, and nothing is taken up."""
    tag = answer.headers.get("ETag", "")
    return tag if tag.startswith('"') else answer.headers.get("Last-Modified", "")


def size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def check_room(directory: str, needed: int) -> None:
    """Raises DirectoryUnusable."""
    if (missing := needed - free_bytes(directory)) > 0:
        what = f"no space on {directory}: {needed} bytes are still to be written, {missing} more than are free"
        raise DirectoryUnusable(what, "what was downloaded so far is kept")


def total_size(urls: Sequence[str]) -> int:
    """Bytes of all; 0 when a server does not say."""
    total = 0
    for url in urls:
        try:
            with asked(url, {}, "HEAD") as answer:
                length = length_of(answer)
        except (AgentError, _Again):
            length = None
        if length is None:
            return 0
        total += length
    return total


def main(directory: str, *urls: str) -> int:
    wanted = [Wanted(url, directory) for url in urls]
    print(json.dumps({"total": total_size(urls)}), flush=True)
    try:
        for each in wanted:
            if not re.fullmatch(r"[\w][\w.-]*", each.name):
                raise MissingProgram(f"{each.url} does not end in the name of a file")
            if not os.path.exists(each.path):
                download(each)
    except OSError as error:
        failed: AgentError = DirectoryUnusable(f"{directory}: {error.strerror or error}", "")
    except AgentError as error:
        failed = error
    else:
        return 0
    print(json.dumps({"code": int(failed.code), "what": failed.what, "hint": failed.hint}), flush=True)
    return int(failed.code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
