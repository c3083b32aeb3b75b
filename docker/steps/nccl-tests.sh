#!/bin/sh
# steps/nccl-tests.sh COMMIT ARCHITECTURES TARGET: NVIDIA's nccl-tests with MPI, as TARGET/build/*_perf.
#
# ARCHITECTURES are numbers such as "90 100". Open MPI is that of the image; nccl.h is, and NCCL itself is loaded by name
# when they run: that of the fabric, which LD_LIBRARY_PATH puts first.
set -eu
commit=$1 architectures=$2 target=$3
work=$(mktemp -d)
git clone --quiet --no-checkout https://github.com/NVIDIA/nccl-tests.git "$work"
git -C "$work" checkout --quiet "$commit"
mpi=$(readlink -f "$(command -v mpirun)")
jobs=$(nproc)
flags=''
for one in $architectures; do
    flags="$flags -gencode=arch=compute_$one,code=sm_$one"
done
make --directory "$work" --jobs "$jobs" MPI=1 "MPI_HOME=${mpi%/bin/*}" CUDA_HOME=/usr/local/cuda "NVCC_GENCODE=$flags" \
    "BUILDDIR=$target/build"
for name in all_reduce all_gather reduce_scatter alltoall sendrecv; do
    # Built without MPI each process would be a cluster of its own.
    ldd "$target/build/${name}_perf" >"$work/libraries"
    grep -q libmpi "$work/libraries"
done
rm -rf "$work" "$target"/build/*.o "$target"/build/verifiable
