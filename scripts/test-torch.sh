#!/bin/sh
# `make test-torch`: the tests of what depends on torch, with other releases of it than that of the set-up.
#
#     scripts/test-torch.sh RELEASE...      such as 2.10 2.15: the newest of each
#
# One after the other: an environment takes 2 to 8 GB, and is removed when its tests have ended.
set -u
cd -P "$(dirname "$0")/.." || exit
PYTHON=${PYTHON:-python3}
TESTS="tests/programs tests/mpi/test_torchrun.py tests/cluster/test_torch_workloads.py tests/clinic/cluster/test_why.py"
place=$PWD/.venv-torch-other
results=''
failed=0
trap 'rm -rf "$place"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# with_release RELEASE: run the tests with it; `result` is how they ended, in words.
with_release() {
    rm -rf "$place"
    if ! "$PYTHON" -m venv "$place" ||
        ! "$place/bin/python" -m pip install --quiet --disable-pip-version-check "torch==$1.*" numpy; then
        result="cannot be installed"
        return 1
    fi
    version=$("$place/bin/python" -c 'import torch; print(torch.__version__)') || {
        result="cannot be imported"
        return 1
    }
    # shellcheck disable=SC2086  # a list of files
    A4_TEST_TORCH=$place .venv/bin/pytest -n "$(nproc)" --dist loadscope -m "not faults and not long" $TESTS
    code=$?
    result="$version: $([ "$code" = 0 ] && echo passed || echo "failed with $code")"
    return "$code"
}

for release; do
    echo "== torch $release"
    with_release "$release" || failed=1
    results="$results
torch $release: $result"
done
echo "$results"
exit "$failed"
