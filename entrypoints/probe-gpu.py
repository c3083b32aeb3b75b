"""Computes on one GPU and checks the product: is it alive?

    probe-gpu.py DEVICE     a number, or cpu

Prints `computing` when it begins, and a JSON object at the end: `problem`, empty when all is well, or `unknown`: why it
could not be tried. Runs under the workload's Python.
"""

from __future__ import annotations

import json
import sys
from typing import Any

SIDE = 2048
FILL_BYTES = 256 << 20


def main(device: str) -> dict[str, str]:
    try:
        import torch
    except Exception as error:  # a broken torch raises whatever it likes
        return {"problem": "", "unknown": f"torch cannot be imported: {error}"}
    if device != "cpu" and not torch.cuda.is_available():
        return {"problem": "", "unknown": f"torch {torch.__version__} finds no GPU"}
    print("computing", flush=True)
    try:
        return {"problem": product(torch, device if device == "cpu" else f"cuda:{device}"), "unknown": ""}
    except torch.OutOfMemoryError as error:
        return {"problem": "", "unknown": f"its memory is taken: {error}".partition(". ")[0]}
    except RuntimeError as error:
        return {"problem": str(error).splitlines()[0], "unknown": ""}


def product(torch: Any, device: str) -> str:
    """Ones times ones: every element is SIDE, whatever the order of the additions. Empty, or what is wrong."""
    memory = torch.full((FILL_BYTES,), 7, dtype=torch.uint8, device=device)
    ones = torch.ones((SIDE, SIDE), dtype=torch.float32, device=device)
    wrong = int((ones @ ones != SIDE).sum())
    odd = int((memory != 7).sum())
    return f"{wrong} elements of a product are wrong" if wrong else f"{odd} bytes of memory changed" if odd else ""


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
