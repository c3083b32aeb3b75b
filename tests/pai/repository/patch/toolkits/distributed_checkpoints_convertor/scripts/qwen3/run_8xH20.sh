#!/bin/bash
MEGATRON=Megatron-LM-250624
. "$(dirname "$0")/../convert.sh"
