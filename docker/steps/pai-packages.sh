#!/bin/sh
# steps/pai-packages.sh TABLE IMAGE FILE...: packages of the requirements files, then what Pai-Megatron needs in that image.
#
# TABLE is agent/workloads/pai_megatron/versions.py, by which the agent judges a pod. Extensions come last: they are built
# with what the others have installed.
set -eu
table=$1 image=$2
shift 2
steps=$(dirname "$0")
for kind in packages extensions; do
    python3 -c 'import runpy, sys
table, image, kind = sys.argv[1:]
print("\n".join(runpy.run_path(table)["IMAGES"][image][kind]))' "$table" "$image" "$kind" >"$steps/$kind.txt"
done
"$steps/python-packages.sh" "$@" "$steps/packages.txt" "$steps/extensions.txt"
