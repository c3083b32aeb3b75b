#!/bin/sh
# mpirun starts this in place of each rank's program: sh rank.sh PROGRAM [ARGUMENT...]
#
# It runs PROGRAM and records in A4_RANKS_DIR/<rank> how that went, whatever program it is:
#
#   started <pid>               PROGRAM is about to run
#   refused                     it cannot be started; the shell's code, 126 or 127, follows
#   ended <code> [<unix time>]  it has ended; code 128 + n is signal n. The time is that of a failure: who was first?
#
# In a run of several steps, "started" and "ended" lines end with " of <step>", which is A4_STEP: an end that comes late
# is no end of the next step.
#
# Signals from mpirun reach the whole process group. This shell stays until PROGRAM has ended.
#
# With the file A4_RANKS_DIR/told the agent has told the ranks to end. mpirun ends all when one has failed, or is gone
# without MPI_Finalize: so each stays, as a sleep, until mpirun is told to end. The agent does that when all are over.
record=${A4_RANKS_DIR:?}/${OMPI_COMM_WORLD_RANK:?}
of=${A4_STEP:+ of $A4_STEP}
stay_if_told() {
    # Without its variables: it is no process of a rank any more.
    [ ! -e "$A4_RANKS_DIR/told" ] || exec env -i PATH="$PATH" A4_RUN="${A4_RUN-}" sleep 86400
}
# mpirun has put its own directory in front: the python3 there, such as /usr/bin's, would come before the user's.
PATH=${A4_RANKS_PATH:-$PATH}
trap : HUP INT QUIT USR1 USR2 TERM
stay_if_told
exec 3>&2 2>/dev/null # what a shell says of a killed command is no output of PROGRAM
(
    read -r pid _ </proc/self/stat
    echo "started $pid$of" >"$record"
    # Only a failed exec comes to this. bash gets here when nothing is found, dash in every case.
    trap 'echo refused >>"$record"' EXIT
    exec "$@" 2>&3 3>&-
)
code=$?
when=
# A process more, so not for every rank. mpirun's signals to the others come while it runs.
[ $code = 0 ] || when=$(
    trap '' HUP INT QUIT USR1 USR2 TERM
    date +%s.%N
)
echo "ended $code $when$of" >>"$record"
stay_if_told

# Open MPI 5 forgets a rank that ends as soon as it is started, and what a rank printed just before its end.
[ -z "${A4_RANKS_LINGER-}" ] || sleep "$A4_RANKS_LINGER"
exit $code
