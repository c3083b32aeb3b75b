"""What NCCL's own diagnostics say, 2.31 and later: lines of `NCCL DIAG`, as its source formats them.

    node042:12345 NCCL DIAG [INFO] NVLink: inactive link(s) on rank(s) {1} across 2 ranks in comm 0x1234

From diagnostics_log.h, diagnostics.cc, diagnostics/p2p.cc and ras/diagnostics*.cc of 2.31.2, and from what 2.31.2 and
2.32.3 printed on two H200.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from agent.decide.facts import Severity

SEVERITIES: dict[str, Severity] = {
    "p2p": "fatal", "NVLink": "fatal", "ECC": "degraded", "GPU inventory": "degraded", "NCCL environment": "degraded",
    "CUDA driver version": "degraded", "NVIDIA graphics driver version": "degraded",
}  # fmt: skip
"""By NCCL's names of its checks. [INFO] is all that it says of a fault; others, as that of paths, may say it of what is
well."""
OF_NETWORK = {"net bw", "rdma_topo check", "IOMMU mode", "IOMMU groups", "ATS state"}
"""Not checked: the two ranks meet without the network's devices, of which these would say something."""
NOT_LOOKED = re.compile(
    r"unavailable|incomplete|not inspected|no kernel-log source|truncated|could not locate|returned \d+$"
    r"|setup failed on rank"
)
"""NCCL has no tag for what it could not see."""
EXPECTED = re.compile("temporarily enabled context-wide")
_LINE = re.compile(r"^\S+:\d+ NCCL DIAG \[(OK|INFO)\]\s+(.*)$", re.MULTILINE)
_END = re.compile(r"^\S+:\d+ NCCL DIAG RAS diagnostics completed in ", re.MULTILINE)


class DiagLine(NamedTuple):
    """What one line says."""

    check: str
    text: str
    good: bool | None
    severity: Severity


def parse(output: str) -> Iterator[DiagLine]:
    """The lines in a process's output, among others. If NCCL did not finish, that is unknown."""
    lines = _LINE.findall(output)
    for tag, text in lines:
        check = text.partition(":")[0]
        if check in OF_NETWORK:
            continue
        good = True if tag == "OK" or EXPECTED.search(text) else None if NOT_LOOKED.search(text) else False
        yield DiagLine(check, text, good, SEVERITIES.get(check, "information"))
    if lines and not _END.search(output):
        yield DiagLine("RAS", "NCCL did not end its diagnostics in time", None, "information")
