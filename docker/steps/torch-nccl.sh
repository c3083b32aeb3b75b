#!/bin/sh
# steps/torch-nccl.sh VERSION: the image's torch must not be made for a newer NCCL than VERSION, which its fabric brings.
#
# It would call functions that the fabric's NCCL lacks, and could not be imported.
set -eu
newer=$(python3 -c 'import sys, torch
made_for = tuple(torch.cuda.nccl.version())[:3]
print(".".join(map(str, made_for)) if made_for > tuple(map(int, sys.argv[1].split("."))) else "")' "$1")
if [ -n "$newer" ]; then
    echo "torch-nccl.sh: torch is made for NCCL $newer, and the fabric brings $1: take another base" >&2
    exit 1
fi
