#!/bin/bash
PROGRAM=pretrain_qwen3_next.py PREFIX=mcore-qwen3-next MEGATRON=Megatron-LM-250908
. "$(dirname "$0")/../train.sh"
