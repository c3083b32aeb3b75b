#!/bin/sh
# steps/deepep.sh COMMIT ARCHITECTURE NVSHMEM TARGET: DeepEP at a commit of pull request 466, which maps GPUs to NICs.
set -eu
commit=$1 architecture=$2 nvshmem=$3 target=$4
git clone --quiet https://github.com/deepseek-ai/DeepEP.git "$target"
# The commit is on no branch: only the pull request leads to it.
git -C "$target" fetch --quiet origin pull/466/head
git -C "$target" checkout --quiet "$commit"
cd "$target"
# nvcc finds CUDA's C++ library by itself, g++ does not.
CPLUS_INCLUDE_PATH=/usr/local/cuda/targets/x86_64-linux/include/cccl${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
MAX_JOBS=$(nproc)
export CPLUS_INCLUDE_PATH MAX_JOBS NVSHMEM_DIR="$nvshmem" TORCH_CUDA_ARCH_LIST="$architecture"
python3 setup.py build_ext --inplace
test -e tests/test_internode.py
ls deep_ep_cpp*.so
rm -rf build
