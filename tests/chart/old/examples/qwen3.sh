#!/bin/bash
# A training script such as qwen3.sh of the old testbeds, for the tests of the chart.
cd "$PAI_WORKSPACE_ROOT" || exit 1
echo "qwen3: $TRAINING_MODE with $NNODES nodes of $GPUS_PER_NODE GPUs"
