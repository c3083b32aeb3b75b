#!/bin/bash
MEGATRON=Megatron-LM-250908
. "$(dirname "$0")/../convert.sh"
