"""Runs as a person sees them who waits: run, mpirun and torchrun beside an agent that lives."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.commands import build_parser
from agent.decide.progress import progress_text
from agent.decide.runspec import MpirunOptions, RunSpec
from tests.commands.conftest import Call, Shown, Type, Typed, verb
from tests.commands.server import FakeAgent, FakeRun, Refused
from tests.terminal import Terminal, screen

VERBS = [("run", "connectivity"), ("mpirun", "--", "./a.out"), ("torchrun", "--", "train.py")]


def mpi_life(run: FakeRun) -> None:
    """Pod 2 leads, and prints."""
    run.pods = [2, 0, 1, 3]
    run.outputs = [2]
    run.say(2, b"\x00out\n")
    run.say(2, b"err\n", stream=2)
    run.say(2, b"the agent's\n", stream=3)


@pytest.mark.parametrize("argv", VERBS, ids=lambda argv: argv[0])
def test_a_good_run(argv: tuple[str, ...], agent: FakeAgent, call_command: Call) -> None:
    def life(run: FakeRun) -> None:
        mpi_life(run)
        run.end(text="a table\n", results="/gcs/results")

    agent.submitted = life
    code, out, err = call_command(*argv)
    assert (code, out) == (0, "\x00out\na table\n")
    run = agent.runs[0].id
    assert err.splitlines() == [
        f"a4-agent: {run} runs on 4 pods",
        "err",
        f"a4-agent: {run} is done; results on pod 0: /gcs/results",
    ]


def test_a_bad_run(agent: FakeAgent, call_command: Call) -> None:
    def life(run: FakeRun) -> None:
        run.outputs = [0]
        run.end(7, "rank 3 ended 7", where="pod 1, job-1.local", why="\n".join(f"reason {i}" for i in range(30)))

    agent.submitted = life
    code, out, err = call_command("mpirun", "./a.out")
    assert (code, out) == (7, "")
    assert err.splitlines() == [
        "a4-agent: mpirun-0 runs on 4 pods",
        "a4-agent: mpirun-0 ended with exit code 7: rank 3 ended 7 (pod 1, job-1.local)",
        *(f"  reason {i}" for i in range(24)),
        "  … 6 more lines: a4-agent status",
        "  logs: a4-agent logs mpirun-0",
    ]


TRACE = b"[rank%d]: Traceback (most recent call last):\n[rank%d]: RuntimeError: Connection closed by peer\n"


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        ({"code": 1, "what": "rank 3 failed", "why": "Traceback …\n" + "line\n" * 100}, 28),
        ({"code": 0}, 1 + 128),
    ],
)
def test_errors_of_64_pods(end: dict[str, Any], shown: int, agent: FakeAgent, call_command: Call) -> None:
    """What all ranks print when one has failed waits for the end, and is shown only if that tells nothing."""

    def life(run: FakeRun) -> None:
        run.pods = run.outputs = list(range(64))
        run.frames = {pod: [] for pod in run.pods}
        for pod in run.pods:
            run.say(pod, TRACE % (pod, pod), stream=2)
        run.say(5, b"loss 0.1\n")
        run.end(**end)

    agent.submitted = life
    _, out, err = call_command("torchrun", "--label", "--", "train.py")
    assert (out, len(err.splitlines())) == ("[5] loss 0.1\n", shown)
    assert ("(128 more lines of errors)" in err) == bool(end["code"])


@pytest.mark.parametrize(
    ("before", "after", "env", "red"),
    [
        ((), (), {}, ""),
        (("--color=never",), (), {"FORCE_COLOR": "1"}, ""),
        (("--color", "never"), ("--color", "always"), {}, "1"),
    ],
)
def test_the_end_in_colour(
    before: tuple[str, ...], after: tuple[str, ...], env: dict[str, str], red: str, agent: FakeAgent, call_command: Call
) -> None:
    agent.submitted = lambda run: run.end(7, "rank 3 ended 7", why="reason")
    _, _, err = call_command(*before, "mpirun", *after, "./a.out", "--color=own", env=env)
    assert agent.runs[0].spec["args"] == ["./a.out", "--color=own"]
    first = "a4-agent: mpirun-0 ended with exit code 7: rank 3 ended 7"
    assert (f"\x1b[31m{first}\x1b[0m\n  reason\n" if red else f"\n{first}\n  reason\n") in err
    for words in (("logs", "no-such", *after), ("mpirun", *after)):
        _, _, err = call_command(*before, *words, env=env)
        assert err.startswith("\x1b[31ma4-agent: " if red else "a4-agent: ")


def test_a_terminal_tells_in_its_last_line_how_it_goes(agent: FakeAgent, type_command: Type) -> None:
    def life(run: FakeRun) -> None:
        run.say(0, b"begins\n")
        run.say(0, progress_text(run.id, 10.0, "step (3 of 7)").encode() + b"\n", stream=2)

    agent.submitted = life
    with Terminal() as terminal:
        words = ("--color=never", "torchrun", "train.py")
        typed = type_command(*words, env={"TERM": "xterm"}, through=terminal.through, **terminal.streams)
        terminal.until("begins\r\n")
        terminal.until("\rtorchrun-0 on 4 pods, ")
        terminal.until("s: step (3 of 7)\x1b[K")
        agent.runs[0].say(1, b"loss 0.1\n")
        terminal.until("\r\x1b[Kloss 0.1\r\n\rtorchrun-0 on 4 pods, ")
        agent.runs[0].say(0, b"done\n")
        terminal.until("\r\x1b[Kdone\r\n")
        terminal.until(" s\x1b[K")
        agent.runs[0].end(results="/gcs/results")
        rest = terminal.until("/gcs/results\r\n")
        assert screen("\rtorchrun-0" + rest) == ["a4-agent: torchrun-0 is done; results on pod 0: "]
        assert typed.end()[0] == 0


def test_a_pipe_has_the_agents_own_lines_of_its_progress(agent: FakeAgent, call_command: Call) -> None:
    def life(run: FakeRun) -> None:
        run.say(0, progress_text(run.id, 10.0, "step (3 of 7)").encode() + b"\n", stream=2)
        run.end()

    agent.submitted = life
    _, _, err = call_command("torchrun", "train.py")
    assert err == "a4-agent: torchrun-0 runs on 4 pods\na4-agent: torchrun-0, 10 s: step (3 of 7)\n"


def test_detached(agent: FakeAgent, call_command: Call) -> None:
    assert call_command("mpirun", "--detach", "./a.out") == (0, "mpirun-0\n", "")
    assert [request["op"] for request in agent.requests] == ["submit"]


# What is asked of the agent


def test_what_travels(agent: FakeAgent, call_command: Call, tmp_path: Path) -> None:
    agent.submitted = lambda run: run.end()
    argv = "mpirun -np 4 -N 2 --nodes 2 --hosts 0-1,3 --hosts job-2 --exclude 3 --timeout 90.5 --stall-timeout 0"
    env = {"NCCL_DEBUG": "INFO", "MINE": "é", "TERM": "xterm", "PS1": "$ ", "A4_WORKLOAD": "none", "HOME": "/root"}
    words = (*argv.split(), "--", "./a.out", "-np", "--", "--timeout")
    assert call_command(*words, env=env, cwd=tmp_path)[0] == 0
    spec = RunSpec.from_json(agent.runs[0].spec)
    assert spec == RunSpec(
        "mpirun",
        ("./a.out", "-np", "--", "--timeout"),
        nodes=2,
        hosts=("0-1", "3", "job-2"),
        exclude=("3",),
        ranks=4,
        per_node=2,
        env=spec.env,
        cwd=str(tmp_path),
        timeout=90.5,
        stall=0.0,
        by=f"pod 1 (pid {os.getpid()})",
    )
    assert {"NCCL_DEBUG": "INFO", "MINE": "é"}.items() <= spec.env.items()
    assert not {"TERM", "PS1", "A4_WORKLOAD", "A4_RUN_DIR", "HOME", "PATH"} & set(spec.env)


def test_options_of_mpirun(agent: FakeAgent, call_command: Call) -> None:
    agent.submitted = lambda run: run.end()
    argv = "mpirun -x A=b=c -x MINE -npernode 4 -bind-to core --mca btl tcp -mca pml ob1 --tag-output --oversubscribe"
    words = (*argv.split(), "--map-by", "numa", "./a.out", "-x")
    assert call_command(*words, env={"MINE": "1", "PATH": "/bin"})[0] == 0
    spec = RunSpec.from_json(agent.runs[0].spec)
    assert (spec.args, spec.per_node) == (("./a.out", "-x"), 4)
    assert {"A": "b=c", "MINE": "1"}.items() <= spec.env.items()
    assert spec.mpi == MpirunOptions("core", "numa", (("btl", "tcp"), ("pml", "ob1")), tag=True, oversubscribe=True)


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        ("exec hostname", "hostname"),
        ("exec hostname -f --json", "hostname -f --json"),
        ("exec -- hostname", "hostname"),
        ("exec --nodes 2 hostname --nodes 3", "hostname --nodes 3"),
        ("exec --nodes=2 hostname", "hostname"),
        ("exec --no-fold -- --odd", "--odd"),
        ("exec a -- b", "a -- b"),
        ("exec -- -- b", "-- b"),
        ("exec - x", "- x"),
        ("mpirun -np 4 ./a.out -np 2", "./a.out -np 2"),
        ("mpirun -n4 ./a.out", "./a.out"),
        ("mpirun --np 4 --per-node 1 ./a.out", "./a.out"),
        ("torchrun --nproc-per-node 2 -- -m package", "-m package"),
        ("torchrun --nproc_per_node 2 train.py", "train.py"),
        ("torchrun train.py --nodes 3", "train.py --nodes 3"),
        ("run script -- --nodes 3 --", "--nodes 3 --"),
        ("run --nodes 1 script", ""),
        ("run script --nodes 1 --", ""),
    ],
)
def test_where_the_command_begins(argv: str, command: str) -> None:
    assert build_parser(argv.split()[0]).parse_args(argv.split()).rest == command.split()


def test_torchruns_own_options_are_passed_on(agent: FakeAgent, call_command: Call) -> None:
    words = "--detach --max_restarts=3 -m --nproc-per-node gpu -t 3 -- package -m x"
    call_command("torchrun", *words.split())
    (asked,) = agent.asked("submit")
    spec = asked["spec"]
    assert (spec["args"], spec["per_node"]) == (["--max_restarts", "3", "-m", "-t", "3", "package", "-m", "x"], 0)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("exec", "exec needs a command"),
        ("mpirun -np 4", "mpirun needs a command"),
        ("torchrun --", "torchrun needs a command"),
        (
            "exec --odd hostname",
            "unrecognized arguments: --odd; see a4-agent exec --help\n  options of the command itself go after it",
        ),
        ("exec --node 2 hostname", "exec -- COMMAND --option"),
        ("exec --nodes -- hostname", "argument --nodes: expected one argument"),
        ("exec --nodes 0 hostname", "argument --nodes: '0' is not a whole number from 1 to"),
        ("exec --hosts 1,,2 hostname", "'1,,2' is not a list of pods such as 0,2-5"),
        ("exec --exclude= hostname", "'' is not a list of pods"),
        (
            "exec --timeout soon hostname",
            "'soon' is not 0 or a number (at least 1), such as 3600, or with a unit, such as 1h",
        ),
        ("exec --stall-timeout -1 hostname", "argument --stall-timeout"),
        ("exec --json --no-fold hostname", "not allowed with"),
        ("exec --detach hostname", "unrecognized arguments: --detach"),
        ("mpirun -np x ./a.out", "argument -np/-n/--np: 'x' is not a whole number"),
        ("torchrun --nproc-per-node 0 a.py", "'0' is not a whole number from 1 to"),
        ("mpirun -H a,b ./a.out", "name pods with --hosts LIST"),
        ("mpirun --hostfile h -np 2 ./a.out", "name pods with --hosts LIST"),
        ("mpirun -x NOT_SET ./a.out", "NOT_SET is not set in this shell"),
        ("mpirun -x RANK=1 ./a.out", "ranks do not get RANK from a shell"),
        ("mpirun -o ./a.out", "unrecognized arguments: -o"),
        ("torchrun --max-restart 3 train.py", "did you mean --max-restarts?"),
        ("torchrun --nproc 2 train.py", "did you mean --nproc-per-node?"),
        ("run mpirun -x A=1 ./a.out", "mpirun is a verb, not a workload: a4-agent mpirun"),
        ("run script argument", "arguments of the workload go after `--`"),
        ("run --odd script", "arguments of the workload go after `--`"),
        (
            "run --nods=2 script",
            "unrecognized arguments: --nods=2; did you mean --nodes? see a4-agent run --help\n  arguments of",
        ),
        ("torchrun --without 1 --without 3 -- train.py", "--without names one rank, not 1 and 3"),
        ("get --output=", "-o needs the name of a directory"),
        ("logs --pod ,", "',' is not a list of pods"),
        ("logs a b", "unrecognized arguments: b"),
        ("logs --rank 1 --pod 1", "argument --pod: not allowed with argument --rank"),
        ("logs --since yesterday", "'yesterday' is not a time such as 90s, 10m, 2h (ago) or 2026-03-04T12:30"),
        ("status --watch 0", "'0' is not a number of seconds (at least 0.01)"),
        ("completion tcsh", "invalid choice: 'tcsh'"),
    ],
)
def test_bad_usage_is_told(
    argv: str, words: str, tmp_path: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A4_RUN_DIR", str(tmp_path))  # nobody listens there: what is not refused ends with 69
    assert verb(*argv.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and words in shown.err


BUSY = Refused(75, "the cluster is busy: somebody runs ddp-1", "follow it", busy=True)


@pytest.mark.parametrize(
    "argv",
    [
        ("run", "--wait", "none"),
        ("run", "--wait", "600", "none"),
        ("mpirun", "--wait", "./a.out", "--wait"),
        ("mpirun", "--wait", "600", "./a.out"),
        ("torchrun", "--wait=600", "--", "a.py"),
    ],
)
def test_after_a_run_that_goes_on(argv: tuple[str, ...], agent: FakeAgent, type_command: Type) -> None:
    agent.refuse = {"submit": BUSY}
    agent.runs = [FakeRun(agent, "ddp-1", {}, [0, 1])]
    agent.submitted = FakeRun.end
    typed = type_command(*argv)
    agent.until(lambda: bool(agent.asked("wait")))
    agent.refuse = {}
    agent.runs[0].end()
    code, _, err = typed.end()
    assert code == 0
    assert err.startswith("a4-agent: the cluster is busy: somebody runs ddp-1; waiting for it to end, ")
    assert agent.asked("wait")[0]["run"] == "ddp-1"


def test_told_to_end_while_another_goes_on(agent: FakeAgent, type_command: Type) -> None:
    agent.refuse = {"submit": BUSY}
    agent.runs = [FakeRun(agent, "ddp-1", {}, [0, 1])]
    typed = type_command("mpirun", "--wait", "./a.out")
    agent.until(lambda: bool(agent.asked("wait")))
    typed.signal(signal.SIGINT)
    code, _, err = typed.end()
    assert (code, err.splitlines()[1:]) == (130, ["a4-agent: no longer waiting; the run has not begun"])
    assert not agent.asked("cancel")


def test_a_run_that_goes_on_for_too_long(agent: FakeAgent, call_command: Call) -> None:
    agent.refuse = {"submit": BUSY}
    agent.runs = [FakeRun(agent, "ddp-1", {}, [0, 1])]
    code, _, err = call_command("mpirun", "--wait=1", "--", "./a.out")
    assert (code, err.splitlines()[-2:]) == (75, ["a4-agent: the cluster is busy: somebody runs ddp-1", "  follow it"])


def test_a_directory_that_is_gone(agent: FakeAgent, type_command: Type, tmp_path: Path) -> None:
    lose = ["sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', "sh"]
    code, _, err = type_command("exec", "hostname", through=lose, cwd=tmp_path).end()
    assert (code, err) == (
        2,
        "a4-agent: the current directory of this shell no longer exists\n  cd to one that exists on every pod\n",
    )


# Ending it


@pytest.fixture
def typed(agent: FakeAgent, type_command: Type) -> Typed:
    """A command that follows a run, which goes on."""
    typed = type_command("mpirun", "./a.out")
    agent.until(lambda: bool(agent.asked("wait")))
    return typed


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_told_to_end(number: int, code: int, agent: FakeAgent, typed: Typed) -> None:
    typed.signal(number)
    agent.until(lambda: bool(agent.asked("cancel")))
    agent.runs[0].say(0, b"last words\n")
    agent.runs[0].end(130, "mpirun-0 was ended", origin="agent")
    ended, out, err = typed.end()
    assert (ended, out) == (code, "last words\n")
    assert err.splitlines()[1:3] == [
        "a4-agent: ending the run on every pod; interrupt again to kill it at once",
        "a4-agent: mpirun-0 ended with exit code 130: mpirun-0 was ended",
    ]
    (request,) = agent.asked("cancel")
    assert (request["run"], request["hurry"]) == ("mpirun-0", False)
    name = signal.Signals(number).name
    assert request["why"] == f"pod 1 (pid {typed.process.pid}) got {name}"


def test_told_again_and_again(agent: FakeAgent, typed: Typed) -> None:
    assert typed.stderr.readline() == b"a4-agent: mpirun-0 runs on 4 pods\n"
    for words in (
        b"ending the run on every pod; interrupt again to kill it at once",
        b"killing the run; interrupt again to stop waiting for it",
    ):
        typed.signal(signal.SIGINT)
        assert typed.stderr.readline() == b"a4-agent: %s\n" % words
    typed.signal(signal.SIGINT)
    assert typed.end() == (130, "", "a4-agent: no longer waiting; mpirun-0 is still running: a4-agent logs mpirun-0\n")
    agent.until(lambda: len(agent.asked("cancel")) == 2)
    assert [request["hurry"] for request in agent.asked("cancel")] == [False, True]


def test_told_to_end_before_it_has_begun(agent: FakeAgent, type_command: Type) -> None:
    gate = threading.Event()

    def life(run: FakeRun) -> None:
        assert gate.wait(60)
        run.end(130)

    agent.submitted = life
    typed = type_command("run", "script")
    agent.until(lambda: bool(agent.asked("submit")))
    typed.signal(signal.SIGINT)
    assert b"has not answered yet: a run that it starts is ended at once" in typed.stderr.readline()
    gate.set()
    assert typed.end()[0] == 130
    (request,) = agent.asked("cancel")
    assert (request["run"], request["hurry"]) == ("script-0", False)


def test_told_to_end_while_nobody_reads(agent: FakeAgent, type_command: Type) -> None:
    """Blocked in a write it still hears, and what was printed is all there in the end."""

    def life(run: FakeRun) -> None:
        run.outputs = [0]
        for i in range(16):
            run.say(0, b"%x" % i * 65536)

    agent.submitted = life
    typed = type_command("mpirun", "./a.out")
    agent.until(lambda: len(agent.asked("read")) == 2)  # a pipe has room for the first piece
    typed.signal(signal.SIGINT)
    agent.until(lambda: bool(agent.asked("cancel")))
    assert len(agent.asked("read")) == 2
    agent.runs[0].end(130)
    code, out, _ = typed.end()
    assert code == 130
    assert out == "".join(f"{i:x}" * 65536 for i in range(16))


# Leaving it


def test_a_terminal_that_hangs_up(agent: FakeAgent, typed: Typed) -> None:
    typed.signal(signal.SIGHUP)
    code, _, err = typed.end()
    assert code == 129
    assert err.endswith("a4-agent: mpirun-0 is still running: a4-agent logs mpirun-0\n")
    assert not agent.asked("cancel")


def test_under_nohup_a_hangup_is_nothing(agent: FakeAgent, type_command: Type) -> None:
    ignoring = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]
    typed = type_command("mpirun", "./a.out", through=ignoring)
    agent.until(lambda: bool(agent.asked("wait")))
    typed.signal(signal.SIGHUP)
    agent.runs[0].end()
    assert typed.end()[0] == 0


def test_a_reader_that_goes(agent: FakeAgent, typed: Typed) -> None:
    typed.stdout.close()
    agent.runs[0].say(0, b"anybody?\n")
    assert typed.process.wait() == 141
    err = typed.stderr.read().decode()
    assert err.endswith(
        "a4-agent: nothing reads the output any more; mpirun-0 is still running: a4-agent logs mpirun-0\n"
    )
    assert not agent.asked("cancel")


def test_a_full_disk(agent: FakeAgent, type_command: Type) -> None:
    agent.submitted = lambda run: run.say(0, b"x")
    with open("/dev/full", "wb") as full:
        code, _, err = type_command("mpirun", "--hosts", "0", "./a.out", stdout=full).end()
    assert code == 73
    assert err.endswith(
        "a4-agent: the output cannot be written: No space left on device\n"
        "  mpirun-0 is still running: a4-agent logs mpirun-0\n"
    )
    assert not agent.asked("cancel")


def test_ctrl_c_on_a_terminal(agent: FakeAgent, type_command: Type) -> None:
    with Terminal() as terminal:
        typed = type_command("run", "script", through=terminal.through, **terminal.streams)
        agent.until(lambda: bool(agent.asked("wait")))
        terminal.type("\x03")
        terminal.until("again to kill it at once")
        agent.until(lambda: bool(agent.asked("cancel")))
        agent.runs[0].end(130)
        terminal.until("logs: a4-agent logs script-0")
        assert typed.process.wait() == 130
