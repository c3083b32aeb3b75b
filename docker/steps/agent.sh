#!/bin/sh
# steps/agent.sh SOURCE CONSTRAINTS: make /opt/a4-agent, a virtual environment with the agent and nothing of the image's.
#
# It runs in a stage of its own, of which only that directory is kept.
set -eu
source=$1 constraints=$2
home=/opt/a4-agent
steps=$(dirname "$0")
if ! python3 -c 'import ensurepip, venv'; then # Debian and Ubuntu have it in a package of its own
    "$steps/packages.sh" python3 python3-venv
fi
# Images of NVIDIA pin what may be installed beside their torch, by variables; here nothing lies beside it.
unset PIP_CONSTRAINT PIP_BUILD_CONSTRAINT PYTHONPATH PYTHONHOME PYTHONUSERBASE
# What is compiled below is to be written.
unset PYTHONDONTWRITEBYTECODE
python3 -m venv "$home"
"$home/bin/python" -m pip install --no-cache-dir --no-compile --disable-pip-version-check --constraint "$constraints" \
    "${source}[report]"
"$home/bin/python" -m pip uninstall --yes --quiet pip setuptools
# Compiled for sources of whole seconds: copied into another stage, times are rounded, and what was compiled is not used.
now=$(date +%s)
find "$home" -type f -exec touch --date="@$now" {} +
"$home/bin/python" -m compileall -q "$home/lib" "$home/share"
# Rank programs meet the image's Open MPI here and not for the first time in a job.
if command -v mpirun >/dev/null; then
    said=$(mpirun --version)
    expected=$(echo "$said" | sed -n '1s/.* //p')
    found=$("$home/bin/python" -c 'from mpi4py import MPI; print(MPI.Get_library_version())')
    case $found in
    "Open MPI v$expected"*) ;;
    *)
        echo "agent.sh: mpirun is Open MPI $expected, and mpi4py has loaded $found" >&2
        exit 1
        ;;
    esac
fi
"$home/bin/a4-agent" version
