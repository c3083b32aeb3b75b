helm install -f $RECIPE_ROOT/gke-runtime/values.yaml \
    --set-file workload_launcher=$RECIPE_ROOT/examples/torchrun-ddp-test.sh \
    --set "workload.image"=$WORKLOAD_IMAGE \
    --set "volumes.gcsMounts[0].bucketName"=${GCS_BUCKET} \
    --set "workload.envs[1].value"="false" \
    $USER-ddp-test \
    $RECIPE_ROOT/gke-runtime/jobset
