"""A4 (B200) with Google's gIB plugin for NCCL over RDMA."""

from __future__ import annotations

from collections.abc import Iterator

from agent.decide.inventory import Inventory
from agent.decide.words import is_are, listed
from agent.fabrics.checks import plugin_problems, rdma_count, wrong_gids
from agent.fabrics.fabric import Fabric, Needs, Variables

MARK = "/usr/local/gib"
SCRIPT = f"{MARK}/scripts/set_nccl_env.sh"
LIBRARIES = f"{MARK}/lib64"
NETWORK = "gIB"


def _needs(environ: Variables) -> Needs:
    tuner = environ.get("NCCL_TUNER_CONFIG_PATH", "")
    return Needs(files=[f"{_libraries(environ)}/libnccl-net.so", *([tuner] if tuner else [])])


def _libraries(environ: Variables) -> str:
    return environ.get("NCCL_PLUGIN_PATH") or LIBRARIES


def _problems(inventory: Inventory) -> Iterator[str]:
    environ = inventory["environ"]
    gone = [path for path, there in inventory.get("files", {}).items() if not there]
    if gone:
        yield (
            f"gIB is not installed in this pod: {listed(gone)} {is_are(gone)} missing; mount what its init container "
            "or installer made (NCCL_PLUGIN_PATH names its lib64)"
        )
    else:
        yield from plugin_problems(inventory, _libraries(environ))
    yield from rdma_count(inventory)
    yield from wrong_gids(inventory, "NCCL_IB_GID_INDEX", None)


FABRIC = Fabric("a4-gib", MARK, NETWORK, _needs, _problems, scripts=(SCRIPT,))
