#!/bin/sh
# Starts a program as a process of a run:  sh enter-run.sh RUN_DIRECTORY PROGRAM [ARGUMENT...]
#
# mpirun starts its daemons on other pods through this. RUN_DIRECTORY/marks, from the agent of the pod, says what marks
# the run's processes there, "GROUP CGROUP": a supplementary group, 0 for none, and the directory of a cgroup, or
# nothing. All that PROGRAM starts inherits both, and so can be found and ended when the run is over.
group=0
read -r group cgroup <"$1/marks"
shift
[ -z "$cgroup" ] || echo 0 >"$cgroup/cgroup.procs" # 0 is who writes
if [ "$group" = 0 ] || ! command -v setpriv >/dev/null; then
    exec "$@"
fi
while read -r name values; do
    [ "$name" != Groups: ] || for value in $values; do group=$group,$value; done
done </proc/self/status
exec setpriv --groups "$group" -- "$@"
