#!/bin/sh
# steps/pai-packages.sh TABLE GROUP: install a group of packages that Pai-Megatron needs, each in exactly its version.
#
# TABLE is agent/workloads/pai_megatron/versions.py, by which the agent judges a pod; GROUP is PACKAGES or EXTENSIONS.
set -eu
table=$1 group=$2
steps=$(dirname "$0")
python3 -c 'import runpy, sys
table, group = sys.argv[1:]
for name, row in runpy.run_path(table)[group].items():
    print(f"{name}=={row.installed}")' "$table" "$group" >"$steps/$group.txt"
# Ready-made wheels are for other builds of torch, and the build would look for them on the network.
export CAUSAL_CONV1D_FORCE_BUILD=TRUE MAMBA_FORCE_BUILD=TRUE
"$steps/python-packages.sh" "$steps/$group.txt"
# By the program with which the agent looks: another package may have brought another version.
wanted=$(sed 's/\([^=]*\)==.*/\1=&/' "$steps/$group.txt")
# shellcheck disable=SC2086  # one word per package
odd=$(python3 "$steps/check-packages.py" $wanted)
if [ "$odd" != "{}" ]; then
    echo "pai-packages.sh: installed is other than $table says: $odd" >&2
    exit 1
fi
