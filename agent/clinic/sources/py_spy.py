"""Python stacks of a process, by py-spy."""

from __future__ import annotations

from agent.clinic.sources.torch_server import NoAnswer
from agent.cutting import cut_at_word
from agent.machine.asking import MOST_REASON, Late, run_to_end, text_of

NO_PY_SPY = "py-spy is not installed (pip install py-spy): it would show the Python stacks"


def dump_json(spy: str, pid: int, seconds: float, *, native: bool = False) -> str:
    """py-spy's dump as JSON, with the local variables of each frame. Raises NoAnswer.

    The process is not paused for it: one that is stuck in the kernel would never come to that. For the `native` frames
    between the Python ones it has to be, for some milliseconds.
    """
    argv = [spy, "dump", "--pid", str(pid), "--native" if native else "--nonblocking", "--json", "--locals"]
    try:
        done = run_to_end(argv, {}, max(0.0, seconds))
    except Late:
        raise NoAnswer(f"py-spy did not finish within {seconds:.1f} s") from None
    except OSError as error:
        raise NoAnswer(f"py-spy: {error}") from None
    if done.status:
        raise NoAnswer(f"py-spy: {_reason(text_of(done.errors))}")
    return text_of(done.output)


def _reason(problem: str) -> str:
    """The error and its causes in one line, each once, without the stack of py-spy itself."""
    told = problem.partition("\nStack backtrace")[0].replace("Caused by:", "").splitlines()
    lines = [line.strip().removeprefix("Error: ") for line in told]
    causes = [line.partition(": ")[2] if line.partition(": ")[0].isdigit() else line for line in lines if line]
    return cut_at_word(": ".join(dict.fromkeys(causes)), MOST_REASON) or "it failed"
