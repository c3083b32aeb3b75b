#!/bin/sh
# steps/deepep-env.sh PROFILE NVSHMEM DEEPEP TARGET: write TARGET, the unified-env.sh that people and the agent source.
#
# What NVSHMEM is told has one source, the fabric profile env/a4-deepep.env; paths are this image's.
set -eu
profile=$1 nvshmem=$2 deepep=$3 target=$4
settings=$(sed -n 's/^\(NVSHMEM_[A-Z_]*\|DEEP_EP_[A-Z_]*\)=\(.*\)$/export \1="\2"/p' "$profile")
[ -n "$settings" ]
cat >"$target" <<END
# Made of a4-agent's profile a4-deepep when the image was built.
export NVSHMEM_HOME="$nvshmem"
export CUDA_HOME="/usr/local/cuda"
export LD_LIBRARY_PATH="\$NVSHMEM_HOME/lib:\$CUDA_HOME/lib64\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
# Before the NVSHMEM that torch brings.
export LD_PRELOAD="\$NVSHMEM_HOME/lib/libnvshmem_host.so.3\${LD_PRELOAD:+:\$LD_PRELOAD}"
export PYTHONPATH="$deepep\${PYTHONPATH:+:\$PYTHONPATH}"
$settings
END
