"""The torch of the Python that runs this, without importing it: JSON with `version` and the `library` that uses NCCL.

Without a torch it prints {}.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os


def find() -> dict[str, str]:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    library = os.path.join(os.path.dirname(spec.origin), "lib", "libtorch_cuda.so")
    return {
        "version": importlib.metadata.version("torch"),
        "library": library if os.path.exists(library) else "",
    }


if __name__ == "__main__":
    print(json.dumps(find()))
