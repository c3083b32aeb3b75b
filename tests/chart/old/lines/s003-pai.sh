helm install -f $RECIPE_ROOT/values.yaml \
    --set-file workload_launcher=$REPO_ROOT/training/a4/alibaba-pai-megatron-patch/gke-runtime/launchers/torchrun-stratup.sh \
    --set-file pai_training_script=$REPO_ROOT/training/a4/alibaba-pai-megatron-patch/examples/qwen3.sh \
    --set "workload.image"=dsw-registry.cn-wulanchabu.cr.aliyuncs.com/pai/pai-megatron-patch:25.04 \
    --set queue=${KUEUE_NAME} \
    --set "volumes.gcsMounts[0].bucketName"=${GCS_BUCKET} \
    $USER-pai-megatron \
    $RECIPE_ROOT/gke-runtime/jobset
