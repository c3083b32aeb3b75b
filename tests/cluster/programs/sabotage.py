"""sitecustomize of ranks that do what they should not: SABOTAGE="killed on 1" or "hangs on 1"

Acts in the processes of torchrun alone, and only once the ranks have found each other. A rank that hangs makes
/mnt/hangs first.
"""

import importlib.abc
import importlib.machinery
import os
import signal
import sys
import time

WISH, _, RANK = os.environ.get("SABOTAGE", "").partition(" on ")


def hang_for_sabotage() -> None:
    open("/mnt/hangs", "w").close()
    time.sleep(600)


def sabotage(dist) -> None:  # type: ignore[no-untyped-def]
    def all_reduce(tensor, *args, **kwargs):  # type: ignore[no-untyped-def]
        if WISH == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        hang_for_sabotage()

    dist.all_reduce = all_reduce


class Finder(importlib.abc.MetaPathFinder):
    """Changes torch.distributed when it is imported: torch is not imported for those who do not."""

    def find_spec(self, name, path, target=None):  # type: ignore[no-untyped-def]
        if name != "torch.distributed":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None and spec.loader is not None
        run = spec.loader.exec_module

        def exec_module(module):  # type: ignore[no-untyped-def]
            run(module)
            sabotage(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if WISH and os.environ.get("RANK") == RANK and "TORCHELASTIC_RUN_ID" in os.environ:
    sys.meta_path.insert(0, Finder())
