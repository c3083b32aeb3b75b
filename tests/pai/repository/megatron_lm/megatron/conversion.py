"""A model of Hugging Face to a checkpoint of Megatron, in the order in which the real convertor does things."""

import argparse
import json
import shutil
from pathlib import Path

from megatron import checkpoint, habits
from megatron.group import join


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--load-dir", type=Path, required=True)
    parser.add_argument("--save-dir", type=Path, required=True)
    options = parser.parse_args()
    shards = json.loads((options.load_dir / "model.safetensors.index.json").read_text())["weight_map"].values()
    content = b"".join((options.load_dir / name).read_bytes()[:16] for name in sorted(set(shards)))
    group = join()
    habits.reach("convert")
    if habits.has("skips weights") and group.rank == 0:
        print("Never visit the following huggingface weights in the conversion: ['model.mtp']", flush=True)
    checkpoint.save(group, options.save_dir / "iter_0000001", content)
    if group.rank == 0:
        # The tracker first: what dies in between leaves one that promises what is not there.
        checkpoint.track(options.save_dir, "release")
        habits.reach("convert-tracker")
        shutil.move(options.save_dir / "iter_0000001", options.save_dir / "release")
    group.sum(0)
    group.close()
