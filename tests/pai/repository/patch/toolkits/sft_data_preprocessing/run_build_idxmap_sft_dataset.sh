#!/bin/bash
# Takes the 6 positions of the real one, and ends with 0 whatever has happened, as that does.
export PYTHONPATH="$(cd "$(dirname "$0")/../.." && pwd)/backends/megatron/Megatron-LM-250624:$PYTHONPATH"
python build_idxmap_sft_dataset.py --input "$1" --patch-tokenizer-type "$2" --seq-length "$3" --output-prefix "$4" \
    --load "$5" --packing "${6:-false}"
echo "$SECONDS s"
