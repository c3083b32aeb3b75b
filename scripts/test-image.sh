#!/bin/sh
# Run a command, the tests of the images, where all that they make is gone when it ends, even by kill -9:
#
#     scripts/test-image.sh .venv/bin/pytest tests/image
#
# Containers and namespaces' names live in a process and a mount namespace of their own, images in memory.
set -eu
[ "$(id -u)" = 0 ] || {
    echo "test-image: not root: containers and networks are made here" >&2
    exit 1
}
IMAGE_CGROUP=/a4-image-$$
export IMAGE_CGROUP
# Control groups are the one thing that no namespace takes with it.
trap 'find /sys/fs/cgroup -depth -type d -path "*$IMAGE_CGROUP*" -exec rmdir {} \; 2>/dev/null' EXIT
trap : INT TERM HUP # the command gets them too, and we wait for it
for place in /run/containers /run/libpod /run/netns /var/lib/containers; do
    mkdir -p "$place"
done
code=0
# shellcheck disable=SC2016  # the inner shell's own
setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc sh -c '
    for place in /dev/shm /run/containers /run/libpod /run/netns /var/lib/containers /var/tmp; do
        mount -t tmpfs -o mode=1777 none "$place" || exit 1
    done
    exec tini -- "$@"' sh "$@" || code=$?
exit "$code"
