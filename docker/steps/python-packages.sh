#!/bin/sh
# steps/python-packages.sh FILE...: packages for the image's own Python, the workload's, from requirements files.
#
# CUDA extensions are built against the torch that is there (no build isolation), and a build that fails is an error: the
# old recipe ignored it, and jobs failed later.
set -eu
# NVIDIA's images pin their packages by a file; what is listed here is wanted in another version.
unset PIP_CONSTRAINT PIP_BUILD_CONSTRAINT
# torch starts as many nvcc as there are cores. Those of mamba-ssm and causal-conv1d work on four targets at a time, each
# with up to 2 GiB.
if [ -z "${MAX_JOBS:-}" ]; then
    MAX_JOBS=$(awk '/MemAvailable/ { jobs = int($2 / 1048576 / 8); print (jobs < 1 ? 1 : jobs) }' /proc/meminfo)
    export MAX_JOBS
fi
torch=$(python3 -c 'import torch; print(torch.__version__, torch.version.cuda)')
for file; do
    python3 -m pip install --no-cache-dir --disable-pip-version-check --no-build-isolation --requirement "$file"
done
now=$(python3 -c 'import torch; print(torch.__version__, torch.version.cuda)')
if [ "$now" != "$torch" ]; then
    echo "python-packages.sh: torch was $torch and is $now: one of $* brings a torch without NVIDIA's changes" >&2
    exit 1
fi
