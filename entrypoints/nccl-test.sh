#!/bin/sh
# Runs one program of nccl-tests, as a rank of mpirun:  sh nccl-test.sh TEST DIRECTORY [OPTION...]
# or only looks whether programs are there:             sh nccl-test.sh --find TEST...
#
# TEST_perf or TEST_perf_mpi is searched in the directories of A4_NCCL_TESTS_PATH (":" between them), then in PATH.
# NCCL's debug log of each rank goes to DIRECTORY/<step>.<host>.<pid>.log, <step> being A4_STEP, else TEST. Rank 0 also
# writes its results to DIRECTORY/<step>.json, if the program can (since nccl-tests 2.17.3) and no OPTION says where to.
# Exit status: the program's; 66 when there is none.

find_program() {
    rest=$A4_NCCL_TESTS_PATH:
    while [ -n "$rest" ]; do
        place=${rest%%:*}
        rest=${rest#*:}
        for program in "$place/$1_perf" "$place/$1_perf_mpi"; do
            [ -f "$program" ] && [ -x "$program" ] && return
        done
    done
    program=$(command -v "$1_perf" || command -v "$1_perf_mpi") && return
    echo "$1_perf of nccl-tests is in none of $A4_NCCL_TESTS_PATH, PATH" >&2
    exit 66
}

has_result() {
    for word in "$@"; do
        case $word in -J* | --ou*) return 0 ;; esac
    done
    return 1
}

if [ "$1" = --find ]; then
    shift
    for name in "$@"; do
        find_program "$name"
        echo "# $name: $program"
    done
    exit 0
fi

find_program "$1"
notes=$2/${A4_STEP:-$1}
shift 2
export NCCL_DEBUG_FILE="$notes.%h.%p.log"
# It prints its options and ends before it touches MPI or a GPU.
if [ "${OMPI_COMM_WORLD_RANK:-0}" = 0 ] && ! has_result "$@" && "$program" --help 2>/dev/null | grep -q output_file; then
    exec "$program" "$@" -J "$notes.json"
fi
exec "$program" "$@"
