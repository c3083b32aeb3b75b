"""The process that holds a test bed that stays: `make kube-up` starts it, its end is the end of all.

    python -m tests.kubernetes.standing DIRECTORY [IMAGE...]

It keeps `kubeconfig` in DIRECTORY, whose file `lock` it inherits locked, says `ready` on stdout, and ends after
SIGTERM, or when the nodes do.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agent.workbench.local.spec import address
from tests.kubernetes.bed import Bed, with_nodes
from tests.kubernetes.control_plane import KUBECONFIG, MASTER, running
from tests.kubernetes.forwarding import forwarded
from tests.kubernetes.programs import programs

SERVER_PORT = 6443


def main(directory: Path, images: Sequence[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with running(programs()) as plane, with_nodes(plane, images) as bed:
        asyncio.run(_serve(bed, directory))


async def _serve(bed: Bed, directory: Path) -> None:
    """Until SIGTERM. Raises RuntimeError when the nodes have ended."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    cluster = bed.plane.cluster
    async with forwarded(cluster.supervisor_pid(), (address(MASTER), SERVER_PORT)) as port:
        _write(directory / "kubeconfig", cluster.read(MASTER, KUBECONFIG), port)
        print("ready", flush=True)
        while not told.is_set():
            bed.check()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(told.wait(), 1)


def _write(path: Path, text: str, port: int) -> None:
    config = json.loads(text)
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path.touch(0o600)
    path.write_text(json.dumps(config))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
