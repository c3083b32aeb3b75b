"""What makes the ranks of a run ready to say why it hangs. A value of the user's own stands."""

from __future__ import annotations

from agent.clinic.interface import DUMP_PREFIX
from agent.paths import shipped
from agent.workloads.base import RunContext

RECORDED = 2000
"""Operations that torch's recorder keeps: as many as with NCCL when nothing is set. Without this gloo records none."""
BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
DUMP = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
TIMING = ("TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING")
"""Names of one thing each. The first is set: a torch that knows it warns of the second, and one that does not is given
that by the hook (entrypoints/hook)."""
RAS = ("NCCL_RAS_ADDR",)

RAS_PORTS = range(20_000, 30_000)
"""Where NCCL's RAS may listen: below the ports that the kernel gives to who asks for none."""


def ras_address(context: RunContext) -> str:
    """Where RAS of this run alone listens; empty if that is not known."""
    return f"localhost:{context.ras_port}" if context.ras_port else ""


def why_variables(context: RunContext) -> dict[str, str]:
    """Nothing with A4_WHY=false."""
    if not context.why:
        return {}
    hook = shipped("entrypoints", "hook")
    users = context.environ.get("PYTHONPATH")
    wanted = {
        BUFFER: str(RECORDED),
        DUMP: f"{context.why_dir}/{DUMP_PREFIX}",
        **({RAS: ras} if (ras := ras_address(context)) else {}),
        **({TIMING: "1"} if context.why_timing else {}),
    }
    free = {names[0]: value for names, value in wanted.items() if not any(name in context.environ for name in names)}
    return {"A4_WHY_DIR": context.why_dir, "PYTHONPATH": f"{hook}:{users}" if users else hook, **free}
