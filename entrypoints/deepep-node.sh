#!/bin/sh
# entrypoints/rank.sh starts this once per pod: sh deepep-node.sh [ARGUMENT...]
#
# It runs test_internode.py of DeepEP, which starts a process for each GPU itself, with these arguments and ends with
# its exit status. mpirun mixes the lines of all nodes, so what this node prints goes to files in A4_NOTES_DIR as well:
#
#   about    what is tested, a line each: "script PATH", "version TEXT", "gpu NAME" for each GPU; or "missing TEXT"
#   output   stdout of the test
#   errors   its stderr
#
# From the agent: A4_DEEPEP_DIR, A4_WORKLOAD_PYTHON, WORLD_SIZE (here the number of nodes), MASTER_ADDR, MASTER_PORT,
# and A4_DEEPEP_PRELOAD, the LD_PRELOAD that only the test gets.
notes=${A4_NOTES_DIR:?}
directory=${A4_DEEPEP_DIR:?}
python=${A4_WORKLOAD_PYTHON:?}
trap : HUP INT QUIT USR1 USR2 TERM # they reach the whole process group: this shell waits for the end of the test

missing() {
    echo "missing $1" >"$notes/about"
    echo "deepep: $1" >&2
    exit 66
}

# Newer releases have moved it, and may again.
find_script() {
    for path in tests/test_internode.py tests/legacy/test_internode.py; do
        [ ! -f "$path" ] || { echo "$path" && return; }
    done
    find -L tests -type f -name test_internode.py 2>/dev/null | sort | head -n 1
}

version() {
    "$python" -c 'from importlib.metadata import version; print(version("deep_ep"))' 2>/dev/null ||
        git -c safe.directory='*' describe --always --tags --dirty 2>/dev/null
}

gpus() {
    if [ -d /proc/driver/nvidia/gpus ]; then
        cat /proc/driver/nvidia/gpus/*/information 2>/dev/null | sed -n 's/^Model:[[:space:]]*/gpu /p'
    else
        nvidia-smi -L 2>/dev/null | sed -n 's/^GPU [0-9]*: \(.*\) (UUID: .*/gpu \1/p'
    fi
}

cd "$directory" 2>/dev/null || missing "there is no directory $directory (A4_DEEPEP_DIR)"
script=$(find_script)
[ -n "$script" ] || missing "no tests/test_internode.py, no tests/legacy/test_internode.py and no file of that name \
anywhere below tests in $directory (A4_DEEPEP_DIR)"
command -v "$python" >/dev/null || missing "there is no program $python (A4_PYTHON)"
{
    echo "script $directory/$script"
    echo "version $(version)"
    gpus
} >"$notes/about"

# The test writes to files and tail passes on what they get. A tee would hide the exit status of the test, and would
# wait for every process that the test leaves behind.
follow() (
    trap '' HUP INT QUIT USR1 USR2 TERM # to the last word of the test
    exec tail -n +1 -f -s 0.2 --pid="$test" "$notes/$1" 2>/dev/null
)
: >"$notes/output"
: >"$notes/errors"
(
    export RANK="${OMPI_COMM_WORLD_RANK:?}"
    [ -z "${A4_DEEPEP_PRELOAD-}" ] || export LD_PRELOAD="$A4_DEEPEP_PRELOAD"
    exec "$python" "$script" "$@"
) >>"$notes/output" 2>>"$notes/errors" </dev/null &
test=$!
follow errors >&2 &
errors=$!
follow output
wait "$test"
code=$?
wait "$errors"
exit $code
