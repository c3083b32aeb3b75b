#!/bin/bash
# A training script such as pai-megatron-qwen3-next.sh of the old testbeds, for the tests of the chart.
cd "$PAI_WORKSPACE_ROOT" || exit 1
echo "pai-megatron-qwen3-next: $TRAINING_MODE with $NNODES nodes of $GPUS_PER_NODE GPUs"
