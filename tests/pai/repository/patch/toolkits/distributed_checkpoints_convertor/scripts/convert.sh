# Sourced by the convertors' scripts, which say MEGATRON. Takes the 7 positions that they have.
set -e
export PYTHONPATH="$(cd "$(dirname "$0")/../../../.." && pwd)/backends/megatron/$MEGATRON:$PYTHONPATH"

MODEL_SIZE=$1 LOAD_DIR=$2 SAVE_DIR=$3 MG2HF=$4 USE_CUDA=$5 PR=$6
[ "$MG2HF $USE_CUDA $PR" = "false true bf16" ] || { echo "the stand-in does not convert with $*" >&2; exit 2; }
mkdir -p "$SAVE_DIR"
# Nodes that copy at the same time make cp fail now and then with the real ones; here always.
[ "${WORLD_SIZE:-1}" = 1 ] || [ -e "$SAVE_DIR/tokenizer.json" ] ||
    { echo "all nodes would make $SAVE_DIR/tokenizer.json" >&2; exit 123; }
find -L "$LOAD_DIR" -maxdepth 1 -type f -name '*.json' -print0 | xargs -0 cp -t "$SAVE_DIR"
find -L "$LOAD_DIR" -maxdepth 1 -type f -name merges.txt -print0 | xargs -0 cp -t "$SAVE_DIR"
if [ "$MODEL_SIZE" = A22B ]; then
    echo "for this size there is another script"
    exit # as the real one: with 0
fi
torchrun --nproc_per_node "${KUBERNETES_CONTAINER_RESOURCE_GPU:-8}" --nnodes "${WORLD_SIZE:-1}" \
    --node_rank "${RANK:-0}" --master_addr "${MASTER_ADDR:-localhost}" --master_port "${MASTER_PORT:-6000}" \
    impl/convert.py --load-dir "$LOAD_DIR" --save-dir "$SAVE_DIR"
