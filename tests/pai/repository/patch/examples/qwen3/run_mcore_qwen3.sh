#!/bin/bash
PROGRAM=pretrain_qwen.py PREFIX=mcore-qwen3-moe-megatron MEGATRON=Megatron-LM-250624
. "$(dirname "$0")/../train.sh"
