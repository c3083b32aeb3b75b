"""Datasets as Megatron has them, a pair of .bin and .idx; and as JSON."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path

_MAGIC = b"MMIDIDX\x00\x00"
_INT32 = 4


def index(lengths: Sequence[int]) -> bytes:
    """The .idx of so many documents of one sequence each."""
    starts = [_INT32 * sum(lengths[:at]) for at in range(len(lengths))]
    count = len(lengths)
    head = _MAGIC + struct.pack("<QBQQ", 1, _INT32, count, count + 1)
    return head + struct.pack(f"<{count}i{count}q{count + 1}q", *lengths, *starts, *range(count + 1))


def read(prefix: str) -> list[int]:
    """All tokens."""
    found = Path(f"{prefix}.idx").read_bytes()
    if not found.startswith(_MAGIC):
        raise ValueError(f"{prefix}.idx: bad header")
    count = struct.unpack_from("<Q", found, len(_MAGIC) + 9)[0]
    lengths = struct.unpack_from(f"<{count}i", found, len(_MAGIC) + 25)
    content = Path(f"{prefix}.bin").read_bytes()
    if len(content) != _INT32 * sum(lengths):
        raise ValueError(f"{prefix}.bin has {len(content)} bytes")
    return list(struct.unpack(f"<{sum(lengths)}i", content))


def read_json(path: str) -> list[int]:
    samples = json.loads(Path(path).read_text())
    return [byte for sample in samples for byte in (sample["instruction"] + sample["output"]).encode()]
