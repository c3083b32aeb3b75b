#!/bin/sh
# entrypoints/rank.sh starts this once per pod: sh deepep-node.sh [ARGUMENT...]
#
# It runs test_internode.py or test_ep.py of DeepEP, which starts a process for each GPU itself, with these arguments
# and ends with its exit status. mpirun mixes the lines of all nodes, so what this node prints goes to files in
# A4_NOTES_DIR as well:
#
#   about    what is tested, a line each: "test internode" or "test elastic", "script PATH", "version TEXT",
#            "nvshmem VERSION", "warning TEXT", "gpu NAME" for each GPU, and at the end "status CODE"; or "missing TEXT"
#   output   stdout of the test
#   errors   its stderr
#
# From the agent: A4_DEEPEP_DIR, A4_WORKLOAD_PYTHON, WORLD_SIZE (here the number of nodes), MASTER_ADDR, MASTER_PORT,
# A4_DEEPEP_TEST, which test, or nothing for the first that is there, and A4_DEEPEP_PRELOAD, the LD_PRELOAD that only
# the test gets.
notes=${A4_NOTES_DIR:?}
directory=${A4_DEEPEP_DIR:?}
python=${A4_WORKLOAD_PYTHON:?}
trap : HUP INT QUIT USR1 USR2 TERM # they reach the whole process group: this shell waits for the end of the test

missing() {
    echo "missing $1" >"$notes/about"
    echo "deepep: $1" >&2
    exit 66
}

# Newer releases have moved the first, and may again.
paths() {
    case $1 in
        internode) echo tests/test_internode.py tests/legacy/test_internode.py ;;
        elastic) echo tests/elastic/test_ep.py ;;
    esac
}

find_script() {
    for path in $(paths "$1"); do
        [ ! -f "$path" ] || { echo "$path" && return; }
    done
    find -L tests -type f -name "${path##*/}" 2>/dev/null | sort | head -n 1
}

preloaded() {
    [ -z "${A4_DEEPEP_PRELOAD-}" ] || export LD_PRELOAD="$A4_DEEPEP_PRELOAD"
    exec "$@"
}

installed() {
    "$python" -c "from importlib.metadata import version; print(version('$1'))" 2>/dev/null
}

version() {
    installed deep_ep ||
        git -c safe.directory='*' describe --always --tags --dirty 2>/dev/null
}

# That of the library that the loader takes for the test, else of the wheel, whose directory the loader does not know.
nvshmem() {
    loaded=$( (preloaded "$python" "$entrypoints/load-libraries.py" libnvshmem_host.so.3 --) 2>/dev/null |
        sed -n 's/.*"version": "\([0-9.]*\)".*/\1/p')
    if [ -n "$loaded" ]; then echo "$loaded"; else
        installed nvidia-nvshmem-cu13 || installed nvidia-nvshmem-cu12
    fi
}

# Since NVSHMEM 3.5.19 the queue pairs of one index, and not those of one peer, lie side by side. DeepEP's legacy
# kernels find them by themselves; until pull request 564, and again in main at dd758ca (2026-07-14), only the old way.
is_known_bad() {
    [ -n "$nvshmem" ] || return 1
    [ "$(printf '%s\n' 3.5.19 "$nvshmem" | sort -V | head -n 1)" = 3.5.19 ] || return 1
    for source in csrc/kernels/ibgda_device.cuh csrc/kernels/legacy/ibgda_device.cuh; do
        ! grep -q 'rcs\[pe \* num_rc_per_pe' "$source" 2>/dev/null || grep -q 'rcs\[.*npes' "$source" || return 0
    done
    return 1
}

gpus() {
    if [ -d /proc/driver/nvidia/gpus ]; then
        cat /proc/driver/nvidia/gpus/*/information 2>/dev/null | sed -n 's/^Model:[[:space:]]*/gpu /p'
    else
        nvidia-smi -L 2>/dev/null | sed -n 's/^GPU [0-9]*: \(.*\) (UUID: .*/gpu \1/p'
    fi
}

entrypoints=$(dirname "$0")
cd "$directory" 2>/dev/null || missing "there is no directory $directory (A4_DEEPEP_DIR)"
places=
for kind in ${A4_DEEPEP_TEST:-internode elastic}; do
    places="$places $(paths "$kind")"
    script=$(find_script "$kind")
    [ -z "$script" ] || break
done
[ -n "$script" ] || missing "$directory (A4_DEEPEP_DIR) has none of$places, and no file of such a name anywhere below \
tests"
command -v "$python" >/dev/null || missing "there is no program $python (A4_PYTHON)"
nvshmem=
[ "$kind" = elastic ] || nvshmem=$(nvshmem)
warning=
if is_known_bad; then
    warning="NVSHMEM is $nvshmem, and DeepEP in $directory lacks pull request 564: since NVSHMEM 3.5.19 this pair ends \
with \"timeout (dispatch CPU)\" (DeepEP, issues 553, 707 and 764); build DeepEP with that change, which 8a07e7e has"
    [ -z "$(find_script elastic)" ] || warning="$warning, or use --test elastic"
    echo "deepep: $warning" >&2
fi
{
    echo "test $kind"
    echo "script $directory/$script"
    echo "version $(version)"
    echo "nvshmem $nvshmem"
    echo "warning $warning"
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
    preloaded "$python" "$script" "$@"
) >>"$notes/output" 2>>"$notes/errors" </dev/null &
test=$!
follow errors >&2 &
errors=$!
follow output
wait "$test"
code=$?
wait "$errors"
echo "status $code" >>"$notes/about"
exit $code
