"""Whether what a stage makes is complete, by its content: what only exists may be half of it."""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from agent.decide.pipeline import StageOutput
from agent.decide.words import count_text

TRACKER = "latest_checkpointed_iteration.txt"
NEWEST = "newest"
"""Expected of a user's own checkpoint: one that was converted, or the newest of a training."""
MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
"""The header of an .idx file: magic, version, type of the tokens, sequences, boundaries of documents."""
TOKEN_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}
MOST_HEADER = 100 << 20
"""safetensors itself takes no longer one."""
COMMON_STATE = b"common_state/"
"""What lay in common.pt is one of the sharded objects since Megatron-core 0.19."""
ABSENT = "it is missing"


SeenFile = tuple[str, str, bytes | None, bytes]
"""A tracked file that is not as it was committed: the submodule that has it (empty: the repository itself), its name
there, what it contains (None: it is missing), and what was committed."""
SeenCheckout = tuple[str, Sequence[str], Sequence[str], Sequence[SeenFile]]
"""What git says of a directory: the commit (empty: it is no repository of its own), lines of `git submodule status
--recursive`, lock files that a git left which was killed, and files that have changed."""


class Reader(Protocol):
    """Looks at files. What is not there has no names, no size and no content."""

    def names(self, path: str) -> Sequence[str]:
        """What is in a directory."""

    def size(self, path: str) -> int | None:
        """The size of a file in bytes."""

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        """A stretch of a file; -1: all the rest."""

    def checkout(self, path: str) -> SeenCheckout:
        """Raises ValueError with why git cannot tell."""


def problem(output: StageOutput, reader: Reader) -> str:
    """Why it is not complete; empty when it is. Whether something trained is, a record must say as well."""
    kinds: dict[str, Callable[[StageOutput, Reader], str]] = {
        "checkout": _checkout,
        "code": _code,
        "model": _model,
        "mmap": _mmap,
        "json": _json,
        "torch_dist": _torch_dist,
        "trained": _trained,
    }
    try:
        return kinds[output.kind](output, reader)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        return f"it cannot be read: {error}"


def _checkout(output: StageOutput, reader: Reader) -> str:
    head, submodules, locks, changed = reader.checkout(output.path)
    if not head:
        return "it is not a git repository" if reader.names(output.path) else ABSENT
    if why := _wrong_commit(output, head, submodules, locks):
        return why
    damaged = [path_of(file) for file in changed if is_damaged(file)]
    return f"{count_text(len(damaged), 'file')} missing or cut off, such as {damaged[0]}" if damaged else ""


def _wrong_commit(output: StageOutput, head: str, submodules: Sequence[str], locks: Sequence[str]) -> str:
    commit, *needed = output.expected.split()
    if head != commit:
        return f"it is at commit {head}, not at {commit}"
    if locks:
        return f"a git that was killed left {locks[0]}"
    states = {"-": "is missing", "+": "is at another commit", "U": "has conflicts"}
    for line in submodules:
        name = line[1:].split()[1]
        if line[:1] in states and (not needed or name in needed):
            return f"submodule {name} {states[line[0]]}"
    return ""


def is_damaged(file: SeenFile) -> bool:
    """Whether it is missing, or was cut off: what it contains is only the beginning. Any other change is an edit."""
    _, _, now, committed = file
    return now is None or (len(now) < len(committed) and committed.startswith(now))


def path_of(file: SeenFile) -> str:
    """Its name in the whole checkout."""
    return "/".join(filter(None, file[:2]))


def changed_files(output: StageOutput, reader: Reader) -> Sequence[SeenFile]:
    """Files of a checkout that have changed, if it is complete but for these."""
    if output.kind != "checkout":
        return ()
    try:
        head, submodules, locks, changed = reader.checkout(output.path)
    except ValueError:
        return ()
    return changed if head and not _wrong_commit(output, head, submodules, locks) else ()


def _code(output: StageOutput, reader: Reader) -> str:
    if reader.size(f"{output.path}/{output.expected}") is not None:
        return ""
    return f"{output.expected} is missing" if reader.names(output.path) else ABSENT


def _model(output: StageOutput, reader: Reader) -> str:
    names = set(reader.names(output.path))
    if not names:
        return ABSENT
    texts = {"config.json", *(name for name in names if re.fullmatch(r"tokenizer.*\.json", name))}
    if len(texts) == 1:
        return "it has no tokenizer"
    for name in sorted(texts):
        if why := _no_object(reader, f"{output.path}/{name}"):
            return f"{name}: {why}"
    index = "model.safetensors.index.json"
    if index not in names:
        return _shard(reader, f"{output.path}/model.safetensors", set())
    weights: dict[str, str] = json.loads(reader.read(f"{output.path}/{index}"))["weight_map"]
    shards: dict[str, set[str]] = {}
    for tensor, shard in weights.items():
        shards.setdefault(shard, set()).add(tensor)
    for shard in sorted(shards):
        if why := _shard(reader, f"{output.path}/{shard}", shards[shard]):
            return f"{shard}: {why}"
    return "" if shards else f"{index} names no files"


def _no_object(reader: Reader, path: str) -> str:
    if reader.size(path) is None:
        return ABSENT
    try:
        return "" if isinstance(json.loads(reader.read(path)), dict) else "it is not a JSON object"
    except ValueError:
        return "it is not JSON"


def _shard(reader: Reader, path: str, tensors: set[str]) -> str:
    """A safetensors file: the length of its header, the header, and the bytes of which that tells."""
    size = reader.size(path)
    if size is None:
        return ABSENT
    length = int.from_bytes(reader.read(path, 0, 8), "little")
    if not 0 < length <= min(size - 8, MOST_HEADER):
        return f"its header cannot be: {length} bytes in a file of {size}"
    header: dict[str, Any] = json.loads(reader.read(path, 8, length))
    header.pop("__metadata__", None)
    if missing := tensors - header.keys():
        return f"it lacks {len(missing)} tensors that the index places there"
    needed = 8 + length + max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
    return _wrong_size(size, needed)


def _mmap(output: StageOutput, reader: Reader) -> str:
    index, data = (f"{output.path}.{end}" for end in ("idx", "bin"))
    size, tokens = reader.size(index), reader.size(data)
    if size is None or tokens is None:
        return f"{'.idx' if size is None else '.bin'}: {ABSENT}"
    if size < HEADER.size:
        return f".idx: {_wrong_size(size, HEADER.size)}"
    magic, version, kind, sequences, boundaries = HEADER.unpack(reader.read(index, 0, HEADER.size))
    if magic != MAGIC or version != 1 or kind not in TOKEN_BYTES or not sequences:
        return ".idx: it is not the index of a dataset"
    needed = HEADER.size + 12 * sequences + 8 * boundaries
    if size not in (needed, needed + sequences):  # with a mode for each sequence
        return f".idx: {_wrong_size(size, needed)}"
    (last_length,) = struct.unpack("<i", reader.read(index, HEADER.size + 4 * (sequences - 1), 4))
    (last_begin,) = struct.unpack("<q", reader.read(index, HEADER.size + 12 * sequences - 8, 8))
    if why := _wrong_size(tokens, last_begin + last_length * TOKEN_BYTES[kind]):
        return f".bin: {why}"
    if output.expected and int(output.expected) != last_length:
        return f"its sequences have {last_length} tokens, not {output.expected}"
    return ""


def _wrong_size(size: int, needed: int) -> str:
    return "" if size == needed else f"it has {size} bytes, and should have {needed}"


def _json(output: StageOutput, reader: Reader) -> str:
    if reader.size(output.path) is None:
        return ABSENT
    text = reader.read(output.path).strip()
    found = json.loads(text) if text.startswith(b"[") else [json.loads(line) for line in text.splitlines()]
    if not found or not all(isinstance(one, dict) for one in found):
        return "it is not a list of JSON objects"
    return ""


def _torch_dist(output: StageOutput, reader: Reader) -> str:
    names = reader.names(output.path)
    if not names:
        return ABSENT
    named = tracked(reader, output.path)
    if output.expected == NEWEST and named.isdecimal():
        return _shards(reader, f"{output.path}/{folder_of(int(named))}")
    if named != "release":
        return f"{TRACKER} does not say release"
    if unfinished := [name for name in names if name.startswith("iter_")]:
        return f"{unfinished[0]} is there, which becomes release at the end"
    return _shards(reader, f"{output.path}/release")


def _shards(reader: Reader, path: str) -> str:
    """A checkpoint of torch: its .metadata is written last, and names the files."""
    names = set(reader.names(path))
    if ".metadata" not in names:
        return f"{path.rpartition('/')[2]}/.metadata: {ABSENT}"
    metadata = reader.read(f"{path}/.metadata")
    if not metadata.endswith(pickle.STOP):
        return ".metadata is cut"
    if "common.pt" not in names and COMMON_STATE not in metadata:
        return f"{path.rpartition('/')[2]}/common.pt: {ABSENT}"
    told = {name.decode() for name in re.findall(rb"__\d+_\d+\.distcp", metadata)}
    needed = dict.fromkeys(told or {name for name in names if name.endswith(".distcp")}, 1) | _least_sizes(metadata)
    for name, least in sorted(needed.items()):
        size = reader.size(f"{path}/{name}") or 0
        if size < least:
            return f"{name} is missing or cut: it has {size} bytes, and should have {least} or more"
    return "" if needed else "it has no *.distcp"


class _Anything:
    """Stands for every object of a pickle. `state`: what it would be restored from."""

    state: Any = None

    def __new__(cls, *_: object) -> _Anything:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, name: object, value: object) -> None:
        """An OrderedDict is filled so."""


class _MetadataUnpickler(pickle.Unpickler):
    """Imports and calls nothing that a pickle names."""

    def find_class(self, module: str, name: str) -> type[_Anything]:
        return _Anything


def _least_sizes(metadata: bytes) -> dict[str, int]:
    """File → how many bytes torch has written to it, as the metadata of a checkpoint say; none if they say it in
    another way."""
    sizes: dict[str, int] = {}
    try:
        for stored in _MetadataUnpickler(io.BytesIO(metadata)).load().state["storage_data"].values():
            name, end = stored.state["relative_path"], stored.state["offset"] + stored.state["length"]
            sizes[name] = max(end, sizes.get(name, 1))
    except Exception:  # whatever another version of torch may write there
        return {}
    return sizes


def _trained(output: StageOutput, reader: Reader) -> str:
    if not reader.names(output.path):
        return ABSENT
    newest = newest_checkpoint(output.path, reader)
    if newest is None:
        return "it has no checkpoint"
    if newest.iteration < int(output.expected or 0):
        return f"its newest checkpoint is of iteration {newest.iteration}, not {output.expected}"
    return ""


class Checkpoint(NamedTuple):
    """One that a training has saved."""

    iteration: int
    directory: str
    """The one that the training saves to; iter_NNNNNNN is in it."""

    @property
    def path(self) -> str:
        return f"{self.directory}/{folder_of(self.iteration)}"


def folder_of(iteration: int) -> str:
    """The directory of that iteration's checkpoint, in the one that the training saves to."""
    return f"iter_{iteration:07d}"


def newest_checkpoint(path: str, reader: Reader) -> Checkpoint | None:
    """The newest whole one in `path`, or in a directory in it: Pai's script makes one, with a name of its own."""
    found = []
    for directory in (path, *(f"{path}/{name}" for name in reader.names(path) if not name.startswith("iter_"))):
        for name in reader.names(directory):
            iteration = re.fullmatch(r"iter_(\d{7,})", name, re.ASCII)
            if iteration:
                found.append(Checkpoint(int(iteration[1]), directory))
    return next((one for one in sorted(found, reverse=True) if not _shards(reader, one.path)), None)


def tracked(reader: Reader, path: str) -> str:
    """What the file says that names the newest checkpoint; empty without one."""
    return reader.read(f"{path}/{TRACKER}", 0, 100).decode(errors="replace").strip()
