"""What the program that downloads models says of errors of the libraries that it uses."""

from __future__ import annotations

import pytest

from tests.entrypoints import load

PROGRAM = load("download-model")


class Refused(Exception):
    """An answer of the server."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} Client Error.\nand more")
        self.response = type("Response", (), {"status_code": status})


class LocalEntryNotFoundError(FileNotFoundError):
    """huggingface_hub: the server did not give it, and it was not there before."""


class OfModelScope(Exception):
    """Has the answer's status itself, or the errors of files."""

    def __init__(self, status: int = 0, **failed: Exception) -> None:
        super().__init__(f"[{status}] not now\n  Request: …" if status else f"{len(failed)} files failed")
        self.status_code = status or None
        self.failed_files = failed


def caused(by: Exception) -> Exception:
    error = LocalEntryNotFoundError("cannot find the requested files")
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused(404), 66),
        (Refused(401), 66),
        (Refused(403), 66),
        (Refused(503), 75),
        (Refused(429), 75),
        (caused(Refused(503)), 75),
        (caused(Refused(404)), 66),
        (OfModelScope(401), 66),
        (OfModelScope(503), 75),
        (OfModelScope(a=OfModelScope(503), b=ConnectionError("reset")), 75),
        (OfModelScope(a=OfModelScope(503), b=OfModelScope(403)), 66),
        (OfModelScope(a=OfModelScope(503), b=OSError(28, "No space left on device")), 73),
        (ConnectionError("refused"), 75),
        (TimeoutError("timed out"), 75),
        (OSError(28, "No space left on device"), 73),
        (OSError(28, "No space left on device", "/mnt/x"), 73),
        (PermissionError(13, "Permission denied", "/mnt/x"), 73),
        (ModuleNotFoundError("No module named 'modelscope'", name="modelscope"), 71),
    ],
)
def test_errors(error: Exception, code: int) -> None:
    found, what, _ = PROGRAM.failure(error, "huggingface", "/mnt/model.partial")
    assert found == code and what and "\n" not in what


@pytest.mark.parametrize(("source", "token"), [("huggingface", "HF_TOKEN"), ("modelscope", "MODELSCOPE_API_TOKEN")])
def test_a_model_that_is_not_for_all_names_the_token(source: str, token: str) -> None:
    assert token in PROGRAM.failure(Refused(401), source, "/mnt/model.partial")[2]


def test_where_room_is_missing() -> None:
    error = OSError(28, "No space left on device")
    for seen, what in ((error, "No space"), (OfModelScope(shard=error), "shard: [Errno 28] No space")):
        found = PROGRAM.failure(seen, "modelscope", "/mnt/model.partial")
        assert what in found[1] and "make room in /mnt/model.partial" in found[2]
