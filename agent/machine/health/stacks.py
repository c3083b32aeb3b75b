"""Python stacks of a process, by py-spy."""

from __future__ import annotations

from agent.machine.asking import Late, run_to_end
from agent.machine.evidence import reason
from agent.machine.health.torch_server import NoAnswer


def dump_json(spy: str, pid: int, seconds: float) -> str:
    """py-spy's dump as JSON, with the local variables of each frame. Raises NoAnswer.

    The process is not paused for it: one that is stuck in the kernel would never come to that.
    """
    argv = [spy, "dump", "--pid", str(pid), "--nonblocking", "--json", "--locals"]
    try:
        done = run_to_end(argv, {}, max(0.0, seconds))
    except Late:
        raise NoAnswer(f"py-spy did not finish within {seconds:.1f} s") from None
    except OSError as error:
        raise NoAnswer(f"py-spy: {error}") from None
    if done.status:
        raise NoAnswer(f"py-spy: {reason(done.errors)}")
    return done.output
