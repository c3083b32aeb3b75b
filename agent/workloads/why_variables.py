"""What makes the ranks of a run ready to say why it hangs. A value of the user's own stands."""

from __future__ import annotations

from agent.paths import shipped
from agent.workloads.base import RunContext

TIMING = ("TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING")
"""Names of one thing. The first is set."""
RAS_PORTS = range(20_000, 30_000)
"""Where NCCL's RAS may listen: below the ports that the kernel gives to who asks for none."""


def ras_address(context: RunContext) -> str:
    """Where RAS of this run alone listens; empty if that is not known."""
    return f"localhost:{context.ras_port}" if context.ras_port else ""


def why_variables(context: RunContext) -> dict[str, str]:
    """Nothing with A4_WHY=false. What torch's recorder reads is set by the hook (entrypoints/hook)."""
    if not context.why:
        return {}
    hook = shipped("entrypoints", "hook")
    users = context.environ.get("PYTHONPATH")
    given = {"A4_WHY_DIR": context.why_dir, "PYTHONPATH": f"{hook}:{users}" if users else hook}
    if context.ras_port and "NCCL_RAS_ADDR" not in context.environ:
        given["NCCL_RAS_ADDR"] = ras_address(context)
    if context.why_timing and not any(name in context.environ for name in TIMING):
        given[TIMING[0]] = "1"
    return given
