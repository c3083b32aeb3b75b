helm install -f $RECIPE_ROOT/gke-runtime/values.yaml \
    --set-file workload_launcher=$RECIPE_ROOT/examples/pai-megatron-qwen3-next.sh \
    --set "workload.image"=$WORKLOAD_IMAGE \
    --set "volumes.gcsMounts[0].bucketName"=${GCS_BUCKET} \
    --set "volumes.nfs.enabled"=true \
    --set "volumes.nfs.ip"=<FILESTORE_IP> \
    --set "workload.envs[1].value"="false" \
    $USER-qwen3-next-training \
    $RECIPE_ROOT/gke-runtime/jobset
