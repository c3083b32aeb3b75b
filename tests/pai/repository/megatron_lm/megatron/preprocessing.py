"""Alpaca files to a dataset: the bytes of each sample are its tokens."""

import argparse
import json
import struct
from pathlib import Path

from megatron import habits
from megatron.datasets import index


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("input", "output-prefix", "load", "patch-tokenizer-type", "packing"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seq-length", type=int, required=True)
    options = parser.parse_args()
    json.loads(Path(options.load, "tokenizer.json").read_text())
    samples = json.loads(Path(options.input).read_text())
    habits.reach("prepare")
    documents = []
    for sample in samples:
        text = sample["instruction"] + sample["input"] + sample["output"]
        tokens = list(text.encode())[: options.seq_length]
        documents.append(2 * (tokens + [0] * (options.seq_length - len(tokens))))
    name = f"{options.output_prefix}_text_document"
    content = b"".join(struct.pack(f"<{len(tokens)}i", *tokens) for tokens in documents)
    Path(f"{name}.bin").write_bytes(content)
    habits.reach("prepared-bin")
    Path(f"{name}.idx").write_bytes(index([len(tokens) for tokens in documents]))
