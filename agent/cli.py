"""The command line: `a4-agent VERB …`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from agent import standard_streams
from agent.errors import READER_GONE, AgentError, Exit


def main(argv: list[str] | None = None) -> int:
    """Run one verb; returns the exit code. As PID 1 of a container the agent first puts tini in front."""
    if os.getpid() == 1:
        return _under_tini()
    from agent.commands import dispatch

    return dispatch(sys.argv[1:] if argv is None else argv)


def verb_of(words: Sequence[str]) -> str:
    """The first word that is neither an option nor the value of --color; empty for none."""
    after_color = False
    for word in words:
        if not after_color and not word.startswith("-"):
            return word
        after_color = word == "--color"
    return ""


def _under_tini() -> int:
    """Start again under tini: without an init, orphans would stay zombies and signals would be lost."""
    try:
        # As it was called, with -I: a directory `agent` in the working directory would be taken for ours.
        os.execvp("tini", ["tini", "--", *sys.orig_argv])
    except OSError as error:
        print(
            f"a4-agent: this is PID 1 and tini cannot be started in front of it ({error.strerror})\n"
            "  Debian and Ubuntu images: apt-get install tini",
            file=sys.stderr,
        )
    return int(Exit.MISSING_PROGRAM)


def entry() -> None:
    """The command. Ends at once: threads that still wait on the network must not hold a pod."""
    if verb_of(sys.argv[1:]) == "run":
        # Who tells this pod to end is heard when an agent lives in it (agent.lifecycle.serve). Until then signals wait:
        # they would end it without a word to the others. Those to PID 1 wait through the start of tini, too.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    standard_streams.set_up()
    try:
        code = main()
    except KeyboardInterrupt:
        code = int(Exit.INTERRUPTED)  # while modules were still being imported
    except SystemExit as end:  # a signal, or argparse after --help or a wrong word
        code = end.code if isinstance(end.code, int) else 0
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or READER_GONE  # the reader of our output has gone, as `| head` does
    except AgentError as error:
        print(f"a4-agent: {error}", file=sys.stderr)
        code = code or int(error.code)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    entry()
