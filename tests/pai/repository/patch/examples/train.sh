# Sourced by both run_mcore_qwen3.sh, which say PROGRAM, PREFIX and MEGATRON. Takes the 27 positions that they have.
set -e
place=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$place/../../backends/megatron/$MEGATRON:$PYTHONPATH"

ENV=$1 MODEL_SIZE=$2 BATCH_SIZE=$3 GLOBAL_BATCH_SIZE=$4 LR=$5 MIN_LR=$6 SEQ_LEN=$7 PAD_LEN=$8 PR=$9
TP=${10} PP=${11} CP=${12} ETP=${13} EP=${14} SP=${15} DO=${16} FL=${17} SFT=${18}
AC=${19} OPTIMIZER_OFFLOAD=${20} SAVE_INTERVAL=${21} DATASET_PATH=${22} VALID_DATASET_PATH=${23}
PRETRAIN_CHECKPOINT_PATH=${24} TRAINED=${25} WARMUP=${26} OUTPUT_BASEPATH=${27}

[ "$ENV" = dlc ] || { echo "the stand-in knows ENV=dlc alone, not $ENV" >&2; exit 2; }
case $FL in true) attention=flash ;; false) attention=fused ;; esac
mode=pretrain
decay=$TRAINED
if [ "$SFT" = true ]; then
    mode=finetune
    decay=$((TRAINED - WARMUP))
else
    TRAINED=$((TRAINED / GLOBAL_BATCH_SIZE / SEQ_LEN)) WARMUP=$((WARMUP / GLOBAL_BATCH_SIZE / SEQ_LEN))
    decay=$TRAINED
fi
if [ "$MP_DATASET_TYPE" = raw ]; then
    data="--dataset JSON-SFT --train-data-path $DATASET_PATH --valid-data-path $VALID_DATASET_PATH"
else
    data="--dataset MMAP --data-path $DATASET_PATH"
fi

# Neither EP nor ETP is in it: two trainings that differ in them alone have one directory.
name="$mode-$PREFIX-$MODEL_SIZE-lr-$LR-minlr-$MIN_LR-bs-$BATCH_SIZE-gbs-$GLOBAL_BATCH_SIZE-seqlen-$SEQ_LEN-pr-$PR"
name="$name-tp-$TP-pp-$PP-cp-$CP-ac-$AC-do-$DO-sp-$SP-ti-$TRAINED-wi-$WARMUP"
save=$OUTPUT_BASEPATH/checkpoint/$name
board=$OUTPUT_BASEPATH/tensorboard/${name}_$(date +%Y.%m.%d-%H.%M.%S)
mkdir -p "$save" "$board" "$OUTPUT_BASEPATH/log"
# Nodes that copy at the same time make cp fail now and then with the real ones; here always.
[ "$WORLD_SIZE" = 1 ] || [ -e "$save/tokenizer.json" ] || { echo "all nodes would make $save/tokenizer.json" >&2; exit 123; }
# As the real ones: with nothing to copy, xargs starts cp all the same, which fails, and so the script ends with 123.
find -L "$PRETRAIN_CHECKPOINT_PATH" -maxdepth 1 -type f -name '*.json' -print0 | xargs -0 cp -t "$save"
find -L "$PRETRAIN_CHECKPOINT_PATH" -maxdepth 1 -type f -name merges.txt -print0 | xargs -0 cp -t "$save"

load=
[ "$PRETRAIN_CHECKPOINT_PATH" = none ] || load="--load $PRETRAIN_CHECKPOINT_PATH"
torchrun --nproc_per_node "$KUBERNETES_CONTAINER_RESOURCE_GPU" --nnodes "$WORLD_SIZE" --node_rank "$RANK" \
    --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" "$PROGRAM" \
    --save "$save" $load --save-interval "$SAVE_INTERVAL" --tensorboard-dir "$board" $data --train-mode "$mode" \
    --lr "$LR" --min-lr "$MIN_LR" --lr-decay-iters "$decay" --lr-warmup-iters "$WARMUP" --train-iters "$TRAINED" \
    --micro-batch-size "$BATCH_SIZE" --global-batch-size "$GLOBAL_BATCH_SIZE" --seq-length "$SEQ_LEN" \
    --max-padding-length "$PAD_LEN" --tensor-model-parallel-size "$TP" --pipeline-model-parallel-size "$PP" \
    --context-parallel-size "$CP" --expert-tensor-parallel-size "$ETP" --expert-model-parallel-size "$EP" \
    --attention-backend "$attention"
