#!/bin/sh
# steps/nvshmem.sh TAG ARCHITECTURE TARGET: NVSHMEM for GPUs that start RDMA themselves (IBGDA), without MPI.
set -eu
tag=$1 architecture=$2 target=$3
work=$(mktemp -d)
git clone --quiet --depth 1 --branch "$tag" https://github.com/NVIDIA/nvshmem.git "$work/source"
# libmlx5.so is what is linked against; the package has it in one that brings more than is needed.
[ -e /usr/lib/x86_64-linux-gnu/libmlx5.so ] || ln -s libmlx5.so.1 /usr/lib/x86_64-linux-gnu/libmlx5.so
# GPUs ring the NIC's doorbell themselves, so GDRCopy is not used; UCX, libfabric and ibrc are other ways to the network.
cmake -G Ninja -S "$work/source" -B "$work/build" \
    -DCMAKE_INSTALL_PREFIX="$target" \
    -DNVSHMEM_PREFIX="$target" \
    -DCUDA_HOME=/usr/local/cuda \
    -DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc \
    -DCMAKE_CUDA_ARCHITECTURES="$architecture" \
    -DNVSHMEM_IBGDA_SUPPORT=ON \
    -DNVSHMEM_MPI_SUPPORT=OFF \
    -DNVSHMEM_SHMEM_SUPPORT=OFF \
    -DNVSHMEM_UCX_SUPPORT=OFF \
    -DNVSHMEM_LIBFABRIC_SUPPORT=OFF \
    -DNVSHMEM_USE_GDRCOPY=OFF \
    -DNVSHMEM_USE_NCCL=OFF \
    -DNVSHMEM_BUILD_TESTS=OFF \
    -DNVSHMEM_BUILD_EXAMPLES=OFF \
    -DNVSHMEM_BUILD_HYDRA_LAUNCHER=OFF \
    -DNVSHMEM_BUILD_PACKAGES=OFF \
    -DNVSHMEM_BUILD_PYTHON_LIB=OFF
jobs=$(nproc)
cmake --build "$work/build" --parallel "$jobs"
cmake --install "$work/build"
# The old recipe copied libraries by hand and ignored errors: these are the files that DeepEP and its ranks need.
cd "$target"
for file in lib/libnvshmem_host.so.3 lib/libnvshmem_device.a lib/nvshmem_transport_ibgda.so.? include/nvshmem.h; do
    test -e "$file"
done
rm -rf "$work"
