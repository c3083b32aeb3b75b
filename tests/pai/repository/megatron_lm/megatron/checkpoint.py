"""Checkpoints with the files of Megatron's `torch_dist`."""

import json
import pickle
from pathlib import Path

from megatron.group import Gloo, Sockets

TRACKER = "latest_checkpointed_iteration.txt"


def save(group: Sockets | Gloo, directory: Path, content: bytes) -> None:
    """Every process writes its shard; then the first one says which there are."""
    directory.mkdir(parents=True, exist_ok=True)
    if group.rank == 0:
        (directory / "common.pt").write_bytes(pickle.dumps({"iteration": directory.name}))
    if isinstance(group, Gloo):
        _save_by_torch(directory, content)
    else:
        (directory / f"__{group.rank}_0.distcp").write_bytes(content)
    group.sum(0)
    if group.rank == 0:
        if isinstance(group, Sockets):
            shards = [f"__{rank}_0.distcp" for rank in range(group.size)]
            (directory / ".metadata").write_bytes(pickle.dumps({"storage_data": dict(enumerate(shards))}))
        (directory / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist"}))
    group.sum(0)


def _save_by_torch(directory: Path, content: bytes) -> None:
    import torch
    from torch.distributed import checkpoint, get_rank

    state = {f"of rank {get_rank()}": torch.tensor(list(content), dtype=torch.uint8)}
    checkpoint.save(state, checkpoint_id=directory)


def track(directory: Path, text: str) -> None:
    (directory / TRACKER).write_text(text)


def load(directory: Path) -> int:
    """The iteration that is loaded from there; 0 for a converted one."""
    try:
        said = (directory / TRACKER).read_text()
    except FileNotFoundError:
        # As Megatron does, which then trains from nothing.
        print(f"WARNING: could not find the metadata file {directory / TRACKER}", flush=True)
        return 0
    place = directory / ("release" if said == "release" else f"iter_{int(said):07d}")
    for name in (".metadata", "common.pt", "metadata.json"):
        (place / name).read_bytes()
    if not list(place.glob("*.distcp")) or not list(directory.glob("*.json")):
        raise FileNotFoundError(f"no shards in {place}, or no tokenizer beside it")
    return 0 if said == "release" else int(said)
